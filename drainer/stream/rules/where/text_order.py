"""Text order: how texts of a collation compare, as MySQL compares them.

Out    keys that are equal where MySQL takes the texts for equal; their order; LIKE, of binary collations
Holds  exact: every binary collation, `general_ci` (a weight a character), ASCII under `unicode_ci` and
       `0900_ai_ci`. Beyond ASCII these two compare letters without accents and case, which is what they do to
       nearly all text: their tables of tens of thousands of weights are not here
Why    collations that pad (all but 0900) take `a` and `a ` for equal; the order pads the shorter text

Tests  tests/drainer/stream/rules/where/test_text_order.py
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidb_binlog.late_dataclass import dataclass

# A weight, then the other characters that have it. All that are not here weigh what their code point is.
_GENERAL_GROUPS: Final = (
    "AaÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặ BbḂḃḄḅḆḇ CcÇçĆćĈĉĊċČčḈḉ "
    "DdĎďḊḋḌḍḎḏḐḑḒḓ EeÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệ FfḞḟ GgĜĝĞğĠġĢģǦǧǴǵḠḡ "
    "HhĤĥȞȟḢḣḤḥḦḧḨḩḪḫẖ IiÌÍÎÏìíîïĨĩĪīĬĭĮįİıǏǐȈȉȊȋḬḭḮḯỈỉỊị JjĴĵǰ KkĶķǨǩḰḱḲḳḴḵ LlĹĺĻļĽľḶḷḸḹḺḻḼḽ "
    "MmḾḿṀṁṂṃ NnÑñŃńŅņŇňǸǹṄṅṆṇṈṉṊṋ "
    "OoÒÓÔÕÖòóôõöŌōŎŏŐőƠơǑǒǪǫǬǭȌȍȎȏȪȫȬȭȮȯȰȱṌṍṎṏṐṑṒṓỌọỎỏỐốỒồỔổỖỗỘộỚớỜờỞởỠỡỢợ PpṔṕṖṗ Qq "
    "RrŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟ SsßŚśŜŝŞşŠšſȘșṠṡṢṣṤṥṦṧṨṩẛ TtŢţŤťȚțṪṫṬṭṮṯṰṱẗ "
    "UuÙÚÛÜùúûüŨũŪūŬŭŮůŰűŲųƯưǓǔǕǖǗǘǙǚǛǜȔȕȖȗṲṳṴṵṶṷṸṹṺṻỤụỦủỨứỪừỬửỮữỰự VvṼṽṾṿ WwŴŵẀẁẂẃẄẅẆẇẈẉẘ "
    "XxẊẋẌẍ YyÝýÿŶŷŸȲȳẎẏẙỲỳỴỵỶỷỸỹ ZzŹźŻżŽžẐẑẒẓẔẕ ÆæǢǣǼǽ Ðð ØøǾǿ Þþ Đđ Ħħ Ĳĳ Ŀŀ Łł Ŋŋ Œœ Ŧŧ Ɓɓ Ƃƃ "
    "Ƅƅ Ɔɔ Ƈƈ Ɖɖ Ɗɗ Ƌƌ Ǝǝ Əə Ɛɛ Ƒƒ Ɠɠ Ɣɣ Ɩɩ Ɨɨ Ƙƙ Ɯɯ Ɲɲ Ɵɵ Ƣƣ Ƥƥ Ʀʀ Ƨƨ Ʃʃ Ƭƭ Ʈʈ Ʊʊ Ʋʋ Ƴƴ Ƶƶ ƷǮǯʒ "
    "Ƹƹ Ƽƽ Ǆǅǆ Ǉǈǉ Ǌǋǌ Ǥǥ Ǳǲǳ Ƕƕ Ƿƿ Ȝȝ Ȣȣ Ȥȥ ΑΆάαἀἁἂἃἄἅἆἇἈἉἊἋἌἍἎἏὰᾀᾁᾂᾃᾄᾅᾆᾇᾈᾉᾊᾋᾌᾍᾎᾏᾰᾱᾲᾳᾴᾶᾷᾸᾹᾺᾼ "
    "Ββϐ Γγ Δδ ΕΈέεἐἑἒἓἔἕἘἙἚἛἜἝὲῈ Ζζ ΗΉήηἠἡἢἣἤἥἦἧἨἩἪἫἬἭἮἯὴᾐᾑᾒᾓᾔᾕᾖᾗᾘᾙᾚᾛᾜᾝᾞᾟῂῃῄῆῇῊῌ Θθϑ "
    "Ι\u0345ΊΐΪίιϊἰἱἲἳἴἵἶἷἸἹἺἻἼἽἾἿὶιῐῑῒῖῗῘῙῚ Κκϰ Λλ Μµμ Νν Ξξ ΟΌοόὀὁὂὃὄὅὈὉὊὋὌὍὸῸ Ππϖ ΡρϱῤῥῬ Σςσϲ "
    "Ττ ΥΎΫΰυϋύὐὑὒὓὔὕὖὗὙὛὝὟὺῠῡῢῦῧῨῩῪ Φφϕ Χχ Ψψ ΩΏωώὠὡὢὣὤὥὦὧὨὩὪὫὬὭὮὯὼᾠᾡᾢᾣᾤᾥᾦᾧᾨᾩᾪᾫᾬᾭᾮᾯῲῳῴῶῷῺῼ ϒϓϔ "
    "Ϛϛ Ϝϝ Ϟϟ Ϡϡ Ϣϣ Ϥϥ Ϧϧ Ϩϩ Ϫϫ Ϭϭ Ϯϯ Ђђ Єє Ѕѕ ІЇії Јј Љљ Њњ Ћћ Џџ АаӐӑӒӓ Бб Вв ГЃгѓ Дд ЕЀЁеѐёӖӗ "
    "ЖжӁӂӜӝ ЗзӞӟ ИЍиѝӢӣӤӥ Йй КЌкќ Лл Мм Нн ОоӦӧ Пп Рр Сс Тт УЎуўӮӯӰӱӲӳ Фф Хх Цц ЧчӴӵ Шш Щщ Ъъ "
    "ЫыӸӹ Ьь ЭэӬӭ Юю Яя Ѡѡ Ѣѣ Ѥѥ Ѧѧ Ѩѩ Ѫѫ Ѭѭ Ѯѯ Ѱѱ Ѳѳ ѴѵѶѷ Ѹѹ Ѻѻ Ѽѽ Ѿѿ Ҁҁ Ҍҍ Ҏҏ Ґґ Ғғ Ҕҕ Җҗ Ҙҙ "
    "Ққ Ҝҝ Ҟҟ Ҡҡ Ңң Ҥҥ Ҧҧ Ҩҩ Ҫҫ Ҭҭ Үү Ұұ Ҳҳ Ҵҵ Ҷҷ Ҹҹ Һһ Ҽҽ Ҿҿ Ӄӄ Ӈӈ Ӌӌ Ӕӕ ӘәӚӛ Ӡӡ ӨөӪӫ Աա Բբ Գգ "
    "Դդ Եե Զզ Էէ Ըը Թթ Ժժ Իի Լլ Խխ Ծծ Կկ Հհ Ձձ Ղղ Ճճ Մմ Յյ Նն Շշ Ոո Չչ Պպ Ջջ Ռռ Սս Վվ Տտ Րր Ցց "
    "Ււ Փփ Քք Օօ Ֆֆ Άά Έέ Ήή Ίί Ύύ Όό Ώώ Ⅰⅰ Ⅱⅱ Ⅲⅲ Ⅳⅳ Ⅴⅴ Ⅵⅵ Ⅶⅶ Ⅷⅷ Ⅸⅸ Ⅹⅹ Ⅺⅺ Ⅻⅻ Ⅼⅼ Ⅽⅽ Ⅾⅾ Ⅿⅿ Ⓐⓐ Ⓑⓑ "
    "Ⓒⓒ Ⓓⓓ Ⓔⓔ Ⓕⓕ Ⓖⓖ Ⓗⓗ Ⓘⓘ Ⓙⓙ Ⓚⓚ Ⓛⓛ Ⓜⓜ Ⓝⓝ Ⓞⓞ Ⓟⓟ Ⓠⓠ Ⓡⓡ Ⓢⓢ Ⓣⓣ Ⓤⓤ Ⓥⓥ Ⓦⓦ Ⓧⓧ Ⓨⓨ Ⓩⓩ Ａａ Ｂｂ Ｃｃ Ｄｄ Ｅｅ Ｆｆ "
    "Ｇｇ Ｈｈ Ｉｉ Ｊｊ Ｋｋ Ｌｌ Ｍｍ Ｎｎ Ｏｏ Ｐｐ Ｑｑ Ｒｒ Ｓｓ Ｔｔ Ｕｕ Ｖｖ Ｗｗ Ｘｘ Ｙｙ Ｚｚ"
)
_GENERAL: Final = {ord(character): group[0] for group in _GENERAL_GROUPS.split() for character in group[1:]}
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")
_IGNORED: Final = "".join(map(chr, (*range(9), *range(14, 32), 127)))
_ALIKE_UNICODE: Final = "\t\n\x0b\x0c\r `^_-,;:!?.'\"()[]{}@*/\\&#%+<=>|~$0123456789"
_ALIKE_0900: Final = "\t\n\x0b\x0c\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"


def _ascii_weights(order: str) -> dict[int, str | None]:
    """ASCII in the order of a collation; ignored characters are none."""
    weights: dict[int, str | None] = {ord(character): None for character in _IGNORED}
    for weight, character in enumerate(order, 1):
        weights[ord(character)] = chr(weight)
    for weight in range(26):
        weights[ord("a") + weight] = weights[ord("A") + weight] = chr(len(order) + 1 + weight)
    return weights


_UNICODE_ASCII: Final = _ascii_weights(_ALIKE_UNICODE)
_0900_ASCII: Final = _ascii_weights(_ALIKE_0900)


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _binary(raw: bytes) -> bytes:
    return raw


def _general(raw: bytes) -> str:
    text = _decoded(raw)
    if text.isascii():
        return text.upper()
    return _BEYOND_BMP.sub("\ufffd", text.translate(_GENERAL))


def _without_accents(text: str) -> str:
    return "".join(
        character for character in unicodedata.normalize("NFKD", text).casefold() if not _is_mark(character)
    )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me", "Cf")


def _uca(weights: dict[int, str | None]) -> Callable[[bytes], str]:
    def key(raw: bytes) -> str:
        text = _decoded(raw)
        return (text if text.isascii() else _without_accents(text)).translate(weights)

    return key


@dataclass(frozen=True, slots=True)
class TextOrder:
    """`key` makes a comparable key of raw text. `blank` is what the shorter key is padded with, if at all."""

    name: str
    key: Callable[[bytes], Any]
    blank: Any

    @property
    def is_binary(self) -> bool:
        """Whether texts compare byte by byte."""
        return self.key is _binary

    def equality_key(self, raw: bytes) -> Any:
        """Equal where the texts are."""
        key = self.key(raw)
        return key if self.blank is None else key.rstrip(self.blank)

    def order(self, left: Any, right: Any) -> int:
        """Below, at or above 0, of two keys."""
        if self.blank is not None and len(left) != len(right):
            length = max(len(left), len(right))
            left, right = left.ljust(length, self.blank), right.ljust(length, self.blank)
        return int(left > right) - int(left < right)


BYTES: Final = TextOrder("binary", _binary, None)
"""Of BINARY, VARBINARY and BLOB."""


def like(pattern: str, escape: str, *, of_bytes: bool) -> Callable[[bytes], bool]:
    """A function of raw text: whether it is like the pattern, in a binary collation. An escape at the end
    stands for itself. `of_bytes`: `_` is a byte, not a character."""
    if of_bytes:
        pattern, decoded = pattern.encode().decode("latin-1"), _latin1
    else:
        decoded = _decoded
    parts, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == escape and at < len(pattern):
            character = pattern[at]
            at += 1
        elif character in "%_":
            parts.append(".*" if character == "%" else ".")
            continue
        parts.append(re.escape(character))
    matches = re.compile("".join(parts), re.DOTALL).fullmatch
    return lambda raw: matches(decoded(raw)) is not None


def _latin1(raw: bytes) -> str:
    return raw.decode("latin-1")


def _orders() -> Iterator[TextOrder]:
    yield TextOrder("utf8mb4_0900_bin", _binary, None)
    for charset in ("ascii", "latin1", "utf8", "utf8mb3", "utf8mb4"):
        yield TextOrder(f"{charset}_bin", _binary, b" ")
    for charset in ("utf8", "utf8mb3", "utf8mb4"):
        yield TextOrder(f"{charset}_general_ci", _general, " ")
        yield TextOrder(f"{charset}_unicode_ci", _uca(_UNICODE_ASCII), _UNICODE_ASCII[ord(" ")])
    yield TextOrder("utf8mb4_0900_ai_ci", _uca(_0900_ASCII), None)


ORDERS: Final = {order.name: order for order in _orders()}
"""By collation."""
