"""Text order: how texts of a collation compare, as MySQL compares them.

In     the raw UTF-8 of two texts, the name of a collation
Out    keys that are equal where MySQL takes the texts for equal; their order; characters for LIKE
Holds  exact: every binary collation, `general_ci` (a weight a character), ASCII under `unicode_ci` and
       `0900_ai_ci`. Beyond ASCII these two compare letters without accents and case, which is what they do to
       nearly all text: their tables of tens of thousands of weights are not here
Why    collations that pad (all but 0900) take `a` and `a ` for equal; the order pads the shorter text

Tests  tests/drainer/stream/rules/where/test_text_order.py
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

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
_GENERAL: Final = {ord(one): group[0] for group in _GENERAL_GROUPS.split() for one in group[1:]}
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")
_IGNORED: Final = "".join(map(chr, (*range(9), *range(14, 32), 127)))
_ALIKE_UNICODE: Final = "\t\n\x0b\x0c\r `^_-,;:!?.'\"()[]{}@*/\\&#%+<=>|~$0123456789"
_ALIKE_0900: Final = "\t\n\x0b\x0c\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"


def _ascii_weights(order: str) -> dict[int, str | None]:
    """ASCII in the order of a collation; ignored characters are none."""
    weights: dict[int, str | None] = {ord(one): None for one in _IGNORED}
    for weight, one in enumerate(order, 1):
        weights[ord(one)] = chr(weight)
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
    return "".join(one for one in unicodedata.normalize("NFKD", text).casefold() if not _is_mark(one))


def _is_mark(one: str) -> bool:
    return unicodedata.category(one) in ("Mn", "Me", "Cf")


def _uca(weights: dict[int, str | None]) -> Callable[[bytes], str]:
    def key(raw: bytes) -> str:
        text = _decoded(raw)
        return (text if text.isascii() else _without_accents(text)).translate(weights)

    return key


def _uca_character(one: str) -> str:
    """A character for LIKE: one for one. Characters without a weight are alike."""
    if one.isascii():
        return "\0" if one in _IGNORED else one.lower()
    return _without_accents(one)[:1] or one


@dataclass(frozen=True, slots=True)
class TextOrder:
    """`key` makes a comparable key of raw text. `blank` is what the shorter key is padded with, if at all.

    `character` makes a character what LIKE compares.
    """

    name: str
    key: Callable[[bytes], Any]
    blank: Any
    character: Callable[[str], str]

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

    def like(self, pattern: str, escape: str) -> Callable[[bytes], bool]:
        """A function of raw text: whether it is like the pattern."""
        matches = re.compile(_expression(pattern, escape, self.character), re.DOTALL).fullmatch
        character = self.character
        if character is _same:
            return lambda raw: matches(_decoded(raw)) is not None
        return lambda raw: matches("".join(map(character, _decoded(raw)))) is not None


def _same(one: str) -> str:
    return one


def _expression(pattern: str, escape: str, character: Callable[[str], str]) -> str:
    """A regular expression. An escape at the end stands for itself."""
    parts, at = [], 0
    while at < len(pattern):
        one = pattern[at]
        at += 1
        if one == escape and at < len(pattern):
            one = pattern[at]
            at += 1
        elif one in "%_":
            parts.append(".*" if one == "%" else ".")
            continue
        parts.append(re.escape(character(one)))
    return "".join(parts)


def _general_character(one: str) -> str:
    return "\ufffd" if one > "\uffff" else one.translate(_GENERAL)


def _latin1(raw: bytes) -> str:
    return raw.decode("latin-1")


BYTES: Final = TextOrder("binary", _binary, None, _same)
"""Of BINARY, VARBINARY and BLOB. `like_bytes` is its LIKE."""


def like_bytes(pattern: str, escape: str) -> Callable[[bytes], bool]:
    """LIKE of binary strings: `_` is one byte."""
    expression = _expression(_latin1(pattern.encode()), escape, _same)
    matches = re.compile(expression, re.DOTALL).fullmatch
    return lambda raw: matches(_latin1(raw)) is not None


def _orders() -> dict[str, TextOrder]:
    found = {"utf8mb4_0900_bin": TextOrder("utf8mb4_0900_bin", _binary, None, _same)}
    for charset in ("ascii", "latin1", "utf8", "utf8mb3", "utf8mb4"):
        name = f"{charset}_bin"
        found[name] = TextOrder(name, _binary, b" ", _same)
    for charset in ("utf8", "utf8mb3", "utf8mb4"):
        name = f"{charset}_general_ci"
        found[name] = TextOrder(name, _general, " ", _general_character)
        name = f"{charset}_unicode_ci"
        blank = _UNICODE_ASCII[ord(" ")]
        found[name] = TextOrder(name, _uca(_UNICODE_ASCII), blank, _uca_character)
    name = "utf8mb4_0900_ai_ci"
    found[name] = TextOrder(name, _uca(_0900_ASCII), None, _uca_character)
    return found


ORDERS: Final = _orders()
"""By collation."""
