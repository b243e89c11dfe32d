"""Template: what reports and nodes look like in a browser. One file that needs nothing beside it.

In     titles, texts and cells; what is not HTML already goes through `html.escape` or
       `tidb_binlog.page.markup` first; of a report no script
Out    HTML, light and dark, and the Content-Security-Policy with which a server gives it
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tidb_binlog import time_text
from tidb_binlog.observe.printable import printable
from tidb_binlog.tso import Ts

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1d2630;--soft:#56626f;--line:#dfe4e9;--back:#f5f7f9;--card:#fff;
--link:#1659a5;--good:#256c47;--bad:#b3261e;--part:#7d5300;
--good-back:#2a7850;--bad-back:#b3261e;--part-back:#8a5b00}
@media (prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#a5b1bd;--line:#313b46;--back:#12171d;
--card:#1b222a;--link:#82b7f5;--good:#6fce9a;--bad:#ff9389;--part:#e7b65a}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0 0 2px;overflow-wrap:anywhere}h2{font-size:17px;margin:34px 0 10px}
a{color:var(--link)}.soft{color:var(--soft)}.mono,code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
.verdict{border-radius:10px;padding:16px 20px;margin:18px 0;color:#fff;font-size:19px;font-weight:600}
.verdict p{margin:4px 0 0;font-size:14px;font-weight:400}
.good{background:var(--good-back)}.bad{background:var(--bad-back)}.part{background:var(--part-back)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:14px}
.card,figure,table,details{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:14px 16px;border-top:4px solid var(--line)}
.card.ok{border-top-color:var(--good)}.card.wrong{border-top-color:var(--bad)}
.card h3{margin:0 0 6px;font-size:15px}.card ul{margin:0;padding-left:18px}
.tag{float:right;font-size:12px;font-weight:600;padding:1px 9px;border-radius:10px;background:var(--back)}
.ok .tag{color:var(--good)}.wrong .tag{color:var(--bad)}
.plots{display:flex;flex-wrap:wrap;gap:14px}figure{margin:0;padding:12px 14px;flex:1 1 min(420px,100%)}
.plots figure{background:#fff;color:#1d2630}
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
@media print{:root{color-scheme:light}body{background:#fff}main{max-width:none}}
"""


def page(title: str, parts: Iterable[str], *, style: str = STYLE, script: str = "") -> str:
    """The whole file; `title` is a text, `parts` are HTML."""
    named = escape(printable(title))
    scripts = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{named}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{style}</style></head><body><main>{''.join(parts)}</main>{scripts}</body></html>\n"
    )


def security_policy(*, style: str = STYLE, script: str = "") -> str:
    """Content-Security-Policy of such a page: this style, this script, and what the script asks of where it
    came from; nothing else is loaded or run, whatever text has come into the page."""
    rules = {
        "default-src": "'none'",
        "style-src": _hash(style),
        "script-src": _hash(script) if script else "'none'",
        "connect-src": "'self'" if script else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def table_of(heads: Sequence[str], rows: str) -> str:
    """`rows` are `tr` elements."""
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{cells}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def moment(ts: Ts) -> str:
    """The time of a timestamp; `-` for none."""
    return time_text.utc(ts) if ts else "-"
