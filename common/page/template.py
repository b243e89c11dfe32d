"""Page: what reports look like in a browser. One file without scripts that needs nothing beside it.

In     titles, texts and cells; what is not HTML already goes through `html.escape` first
Out    HTML
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from common import time_text

_STYLE: Final = """
:root{--ink:#1d2630;--soft:#5b6875;--line:#dfe4e9;--back:#f5f7f9;--good:#2c7d52;--bad:#b3261e;--part:#946200}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0 0 2px}h2{font-size:17px;margin:34px 0 10px}
.soft{color:var(--soft)}.mono{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
.verdict{border-radius:10px;padding:16px 20px;margin:18px 0;color:#fff;font-size:19px;font-weight:600}
.verdict p{margin:4px 0 0;font-size:14px;font-weight:400;opacity:.95}
.good{background:var(--good)}.bad{background:var(--bad)}.part{background:var(--part)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:14px}
.card,figure,table,details{background:#fff;border:1px solid var(--line);border-radius:10px}
.card{padding:14px 16px;border-top:4px solid var(--line)}
.card.ok{border-top-color:var(--good)}.card.wrong{border-top-color:var(--bad)}
.card h3{margin:0 0 6px;font-size:15px}.card ul{margin:0;padding-left:18px}
.tag{float:right;font-size:12px;font-weight:600;padding:1px 9px;border-radius:10px;background:var(--back)}
.ok .tag{color:var(--good)}.wrong .tag{color:var(--bad)}
.plots{display:flex;flex-wrap:wrap;gap:14px}figure{margin:0;padding:12px 14px;flex:1 1 420px}
figure.wide{flex-basis:100%}figure svg{width:100%;height:auto}
figure svg text{font-family:system-ui,"Segoe UI",Roboto,sans-serif!important}
figcaption{font-weight:600;font-size:14px;margin-bottom:6px}
.scroll{overflow-x:auto}table{border-collapse:separate;border-spacing:0;width:100%;font-size:13.5px}
td.key{min-width:9em}td.place{min-width:13em}.file{font-size:11.5px}
th,td{text-align:left;padding:7px 10px;border-bottom:1px solid var(--line);vertical-align:top}
th{font-size:12px;color:var(--soft);font-weight:600;white-space:nowrap}tr:last-child td{border-bottom:0}
td.number{text-align:right;font-variant-numeric:tabular-nums}td{overflow-wrap:anywhere}
td.nowrap{white-space:nowrap}td .want{color:var(--good)}td .have{color:var(--bad)}
details{padding:10px 16px}summary{cursor:pointer;font-weight:600}
@media print{body{background:#fff}main{max-width:none}}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole file; `title` is a text, `parts` are HTML."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def table_of(heads: Sequence[str], rows: str) -> str:
    """`rows` are `tr` elements."""
    cells = "".join(f"<th>{head}</th>" for head in heads)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'


def moment(ts: int) -> str:
    """The time of a timestamp; `-` for none."""
    return time_text.utc(ts) if ts else "-"


def count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def size(number: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} B"
