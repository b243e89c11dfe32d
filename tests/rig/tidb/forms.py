"""Forms of the statements for TiDB: types, keys, partitions, changes, DDL and rows.

A line is a form; what stands in braces is drawn for it by `statements.Statements`. Numbers are weights.

Tests  tests/rig/tidb/test_values.py
"""

from __future__ import annotations

from typing import Final

NUMBERS: Final = (
    "tinyint|smallint|mediumint|int|bigint|tinyint(1)|int unsigned|bigint unsigned|smallint unsigned"
    "|int(5) unsigned zerofill|decimal(10,0)|decimal(65,30)|decimal(5,2)|decimal(20,10) unsigned|float|double"
    "|bit(1)|bit(8)|bit(64)|year|decimal(1,1)|decimal(30,30)|float(7,3)|double(10,2)|double unsigned"
    "|float unsigned|mediumint unsigned zerofill|bigint(3) zerofill|bit(24)|boolean|float(24)|float(30)|real"
    "|decimal|decimal(65,0)|decimal(3,3) unsigned zerofill|double(20,0)|float(5,2) unsigned"
    "|bit|bit(63)|tinyint unsigned zerofill|smallint(3)|double zerofill|dec(12,4)|bigint unsigned zerofill"
    "|numeric(6,3)|fixed(7,2)|int1|int8|middleint unsigned|double precision|float(53)|real(8,3)|int3 zerofill"
)
TEMPORAL: Final = (
    "date|datetime|datetime(3)|datetime(6)|timestamp|timestamp(6)|time|time(6)|time(3)|datetime(1)|timestamp(2)"
    "|time(1)|datetime(5)|timestamp(4)|datetime(0)|time(0)|timestamp(0)"
)
TEXTS: Final = (
    "char(10)|varchar(20)|varchar(255)|text|tinytext|mediumtext|char(2)|varchar(700)|longtext|char"
    "|varchar(1)|text(100)|text(70000)|varchar(3000)|char(255)|varchar(0)|char(0)|varchar(12000)"
)
NATIONAL: Final = "national varchar(20)|nchar(9)|long varchar|text binary"
"""Types that name a character set."""
BINARY: Final = (
    "binary(5)|varbinary(30)|blob|tinyblob|binary(16)|longblob|mediumblob|binary|blob(20)"
    "|varbinary(3000)|binary(255)|long varbinary|binary(0)|varbinary(0)|varbinary(60000)"
)
_MEMBERS: Final = [f"'m{number}'" for number in range(300)]
"""A TiDB shows a SET as the nearest double: of 64 members the first ones are not those that it has."""
OTHER: Final = (
    "json|enum('a','b','c')|enum('','x y','日本')|set('p','q','r')|set('a','A b')"
    "|enum('1','0','2')|enum('a ','b')|enum('A','a','á') charset latin1|set('é','ü') charset utf8"
    "|enum('x''y','back\\\\slash','q\"q','%_')|set('日','本') charset gbk|enum('a','b') charset binary"
    f"|enum({','.join(_MEMBERS)})|set({','.join(_MEMBERS[:53])})"
)
SETS: Final = (
    "||| charset gbk| charset utf8| charset binary| collate utf8mb4_general_ci"
    "| collate utf8mb4_unicode_ci| collate utf8_general_ci| charset latin1"
    "| charset ascii| collate gbk_chinese_ci| collate gbk_bin| collate latin1_bin| collate ascii_bin"
    "| collate utf8_unicode_ci| collate utf8mb4_bin| collate binary"
)
TIMES: Final = (
    "default '0000-00-00 00:00:00'|default current_timestamp{0}"
    "|default current_timestamp{0} on update current_timestamp{0}|on update current_timestamp{0}"
)
COMPUTED: Final = """\
bigint as (`v` * 2)
bigint as (`v` div 3)
bigint as (-`v`)
bigint as (mod(`v`, 7) + 1)
bigint as (`v` % 5)
bigint unsigned as (`v` & 7)
bigint as (`v` is null)
bigint as (`v` in (1, 2, 3))
bigint as (`v` > 5 and `v` < 20)
bigint as (not `v`)
varchar(60) as (concat(`v`, 'x'))
varchar(60) as (concat('é', `v`, '\\''))
varchar(60) as (if(`v` > 5, 'big', null))
varchar(60) as (ifnull(left(`v`, 2), '-'))
varchar(60) as (right(concat('日本語', `v`), 3))
varchar(60) as (trim(concat(' ', `v`, ' ')))
varchar(60) as (hex(`v`))
char(60) as (substring(concat('aß😀', `v`), 2, 3))
int as (char_length(`v`))
varchar(99) as (md5(`v`))
bigint as (coalesce(`v`, 0) + 1)
varchar(20) as (case when `v` > 9 then 'a' when `v` is null then 'n' else 'é' end)
bigint as (`v` between 3 and 9)
int as (length(concat(`v`, 'é')))
varchar(60) as (substr(concat(`v`, 'abc'), -2))
varchar(60) as (`v` || 'x')
varchar(60) as (concat("v", 'y'))
bigint as (not `v` between 3 and 9)
varchar(60) as (concat(_latin1 x'e9', `v`))
varchar(60) as (concat(N'é', `v`, x'41'))
bigint as (`v` <=> null)
bigint as (`v` xor 1)
bigint as (`v` ^ 5)
bigint unsigned as (`v`)
tinyint as (mod(`v`, 9))
varchar(3) as (mod(`v`, 99))"""
COMPUTED_OF_ANY: Final = """\
varchar(99) as (`id`)
varchar(99) as (concat(`id`))
varchar(99) as (hex(`id`))
varchar(99) as (ifnull(`id`, 'é'))
varchar(99) as (left(`id`, 3))
varchar(99) collate utf8mb4_general_ci as (concat(`id`, '日', `v`))
char(9) as (right(`id`, 2))
varchar(9) charset latin1 as (left(`id`, 3))
bigint as (`id`)
bigint as (length(`id`))
bigint as (char_length(`id`))
bigint as (`id` = `v`)
bigint as (`id` < 'b')
bigint as (`id` in ('a', 'A', 'abc', '7'))
bigint as (year(`id`) + month(`id`))
bigint as (if(`id` is null, 1, `v`))
varchar(99) as (trim(`id`))
varchar(99) as (upper(`id`))
varchar(99) as (replace(`id`, 'a', 'é'))
varchar(99) as (lpad(`v`, 5, 'é'))
decimal(20, 4) as (`v` / 3)
double as (`v` * 1.1e0)
decimal(10, 1) as (round(`v` / 7, 2))
date as (`id`)
datetime(3) as (date_add('2024-02-29', interval `v` day))
varchar(20) as (date_format(date_add('2024-02-29', interval `v` day), '%a %b'))
int as (datediff('2024-02-29', `id`))
json as (json_object('k', `v`))
varchar(40) as (json_unquote(json_extract(json_array(`v`, 'é'), '$[1]')))
varchar(60) as (sha2(`v`, 256))
bigint as (crc32(`v`))
varchar(20) as (conv(`v`, 10, 16))
int as (field(`v`, 1, 2, 3))
int as (`v` regexp '^1')
varchar(20) as (case `id` when 'a' then `v` else null end)
float as (`v`)
bigint unsigned as (`v` << 3 | 1)
year as (`v`)
time as (sec_to_time(`v`))
set('a','b') as (if(`v` > 3, 'a,b', 'a'))
enum('a','b') as (if(`v` > 3, 'a', 'b'))
binary(8) as (`id`)
bit(9) as (`v`)
datetime as (`id`)
timestamp as (`id`)
time(3) as (`id`)
varchar(40) as (cast(`id` as char))
varchar(40) as (date_format(`id`, '%Y-%m-%d %H:%i:%s'))
bigint as (hour(`id`))
bigint as (unix_timestamp(`id`))
bigint as (to_days(`id`))
decimal(9,2) as (`id`)
varbinary(99) as (`id`)
varchar(99) as (reverse(`id`))
varchar(99) as (concat_ws('-', `id`, `v`))
varchar(99) collate utf8mb4_unicode_ci as (lower(`id`))
bigint as (`id` like 'a%')
bigint as (strcmp(`id`, 'abc'))
bigint as (find_in_set(`id`, 'a,b,abc'))
bigint as (isnull(`id`))
varchar(99) as (nullif(`id`, 'a'))
varchar(99) as (greatest(`id`, 'b'))
varchar(99) as (cast(`id` as binary))
varchar(99) as (convert(`id` using latin1))
varchar(99) as (to_base64(`id`))
double as (`id`)
int as (week(`id`))
int as (weekofyear(`id`))
varchar(20) as (dayname(`id`))
varchar(99) as (substring_index(`id`, 'b', 1))
bigint as (instr(`id`, 'B'))
bigint as (locate('b', `id`))
bigint as (ascii(`id`))
varchar(99) as (insert(`id`, 2, 1, 'é'))
bigint as (sign(`v`))
bigint as (bit_count(`v`))
varchar(99) as (repeat(`id`, 2))
varchar(99) as (elt(`v`, 'a', 'b'))
bigint as (least(`v`, 7))
date as (last_day(`id`))
bigint as (interval(`v`, 1, 5, 9))
bigint as (truncate(`v`, -1))
bigint as (`id` is true)
varchar(99) as (rpad(`id`, 6, 'xy'))
varchar(99) as (mid(`id`, 0, 2))
varchar(99) as (left(`id`, `v`))
varchar(99) as (substring(`id`, `v`))
varchar(9) as (oct(`v`))"""
"""Not for all values: rows of a session that is not strict, no strict session downstream takes."""
ATTRIBUTES: Final = """\
unique
unique key comment 'u'
default (uuid())
default (rand())
default nextval(a.`s1`)
auto_increment unique
references a.`t1` (`id`)
check (`v` > 0)
column_format fixed
storage disk
collate utf8mb4_unicode_ci
/*T![auto_rand] auto_random(3) */
default null
default '0'
default ''
default 0x41
default b'1'
default true
default 1.5e1
default -0.0
default now()"""
"""Of columns, besides those that fit their types."""
KEYS: Final = """\
`id` bigint not null primary key{clustered}
`id` int not null auto_increment primary key{clustered}
`id` bigint primary key auto_random(3)
`id` bigint unsigned not null, primary key (`id`){clustered}
`id` int not null, `k` varchar(20) collate utf8mb4_general_ci not null, primary key (`id`, `k`){clustered}
`id` varchar(30) collate utf8mb4_general_ci not null, primary key (`id`){clustered}
`id` varchar(40) not null, primary key (`id`(3)){clustered}
`id` varbinary(20) not null, primary key (`id`){clustered}
`id` decimal(20,5) not null, primary key (`id`){clustered}
`id` datetime(3) not null, primary key (`id`){clustered}
`id` int, unique key `u1` (`id`)
`id` int not null, `w` int, unique key `u1` (`id`), unique key `u2` (`w`)
`id` varchar(50) collate utf8mb4_unicode_ci, unique key `u1` (`id`(2))
`id` int
`id` bigint not null primary key, `w` int, unique key `uw` (`w`)
`id` char(10) charset latin1 not null, primary key (`id`){clustered}
`id` varchar(20) charset gbk not null, primary key (`id`){clustered}
`id` enum('a','b','c','') not null, `w` int not null, primary key (`id`, `w`){clustered}
`id` set('p','q','r') not null, `w` tinyint not null, primary key (`w`, `id`){clustered}
`id` bit(10) not null, primary key (`id`){clustered}
`id` float not null, primary key (`id`){clustered}
`id` double not null, primary key (`id`){clustered}
`id` time(3) not null, primary key (`id`){clustered}
`id` timestamp not null default '2000-01-01', primary key (`id`){clustered}
`id` date not null, `w` year not null, primary key (`id`, `w`){clustered}
`id` binary(4) not null, primary key (`id`){clustered}
`id` blob not null, primary key (`id`(5)){clustered}
`id` text collate utf8mb4_general_ci not null, primary key (`id`(2)){clustered}
`id` bigint unsigned not null, `w` decimal(10,2) not null, primary key (`w`, `id`), unique key `uw` (`id`)
`id` varchar(20) collate utf8mb4_general_ci, `w` varchar(9), unique key `u1` (`id`, `w`(2))
`id` int not null, unique key `u1` ((`id` + 1))
`id` varchar(20) not null, unique key `u1` ((lower(`id`)))
`id` serial
`id` varchar(9) collate utf8mb4_unicode_ci, `w` char(8) collate utf8mb4_general_ci, primary key (`w`, `id`)
`id` varchar(40), `w` text collate utf8mb4_unicode_ci, primary key (`id`(4), `w`(2)){clustered}
`id` bigint primary key auto_random(5, 40)
`id` int not null auto_increment, `w` int not null default 1, primary key (`w`, `id`){clustered}, key (`id`)
`id` varchar(40) not null default (uuid()), `w` double default (rand()), primary key (`id`){clustered}
`id` int not null primary key, `j` json, key `mv` ((cast(`j` as unsigned array)))
`id` int auto_increment, key (`id`)
`id` int not null, `gk` bigint as (`id` + 1) stored not null, primary key (`gk`){clustered}
`id` int not null, `gk` char(9) as (concat(`id`, 'x')) stored not null, primary key (`gk`, `id`){clustered}
`id` char(9) not null, `gk` char(9) collate utf8mb4_general_ci as (left(`id`, 3)), unique key `u1` (`gk`)
`id` int not null, `gk` bigint as (`id` div 2) virtual not null, unique key `u1` (`gk`)
`id` int not null primary key, `gk` int as (mod(`id`, 5)) stored, unique key `u1` (`gk`, `v`)
`id` mediumint unsigned zerofill not null primary key{clustered}
`id` year not null primary key{clustered}
`id` int not null, `w` int, `j` json, primary key (`id`), unique key `uj` ((cast(`j` as unsigned array)))
`id` char(9) not null, `w` char(9) default 'é', primary key (`id`(2), `w`(1)){clustered}
`id` int not null, `w` int not null default 3, unique key `u1` (`id`), unique key `u2` (`w`, `id`)
`id` timestamp(6) not null default current_timestamp(6) primary key{clustered}
`id` bigint unsigned auto_random(4) primary key
`id` int, `id2` int as (`id`) virtual, key `k2` (`id2`)"""
PARTITIONED: Final = """\
`id` bigint primary key => range (`id`) (p0 < (10), p1 < (30))
`id` bigint => range (`id`) (p0 < (20), p1 < maxvalue)
`id` bigint primary key => range columns (`id`) (p0 < (20), p1 < (100))
`id` bigint primary key => hash (`id`) partitions 3
`id` bigint primary key => list (`id`) (p0 in (1,2,3,4,5,6,7), p1 in (8,9,10,11,12))
`id` bigint primary key => key (`id`) partitions 3
`id` int primary key => range (`id`) interval (9) first partition less than (0) last partition less than (99)
`id` varchar(30) collate utf8mb4_general_ci => range columns (`id`) (p0 < ('b'), p1 < ('n'), p2 < (maxvalue))
`id` varchar(20) => list columns (`id`) (p0 in ('a','A','abc','','w1'), p1 in ('ss','ß',null,'w2'))
`id` char(9) collate utf8mb4_general_ci => list columns (`id`) (p0 in ('a','abc','','w'), p1 in (null,'s'))
`id` date not null => range columns (`id`) (p0 < ('2000-01-01'), p1 < ('2024-02-29'), p2 < (maxvalue))
`id` datetime not null => range (year(`id`)) (p0 < (1990), p1 < (2020), p2 < (maxvalue))
`id` date => range (to_days(`id`)) (p0 < (to_days('2010-01-01')), p1 < (maxvalue))
`id` timestamp not null => range (unix_timestamp(`id`)) (p0 < (unix_timestamp('2010-01-01')), p1 < (maxvalue))
`id` int, `w` int => list columns (`id`, `w`) (p0 in ((1,1),(2,2),(4,null)), p1 in ((5,5),(null,null)))
`id` int => list (`id`) (p0 in (null,1,2,3,4,5,6,7,8,9), p1 in (10,11,12,13,14,15,16,17,18,19,20))
`id` int primary key => list (`id`) (p0 in (1,2,3), p1 in (4,5,6,7), partition pd default)
`id` int => list (`id` % 4) (p0 in (0,1,null), p1 in (2,3,-1,-2,-3))
`id` int not null primary key => hash (`id` div 3) partitions 4
`id` int => hash (abs(`id`)) partitions 3
`id` datetime => hash (to_days(`id`)) partitions 3
`id` bigint unsigned not null primary key => hash (`id`) partitions 5
`id` bigint unsigned primary key => range (`id`) (p0 < (18), p1 < (9223372036854775808), p2 < maxvalue)
`id` varchar(20) not null primary key => key (`id`) partitions 4
`id` varbinary(20) => key (`id`) partitions 3
`id` int, `w` int => range columns (`id`, `w`) (p0 < (10, 5), p1 < (20, maxvalue), p2 < (maxvalue, maxvalue))
`id` tinyint not null => range (`id`) (p0 < (-5), p1 < (7), p2 < maxvalue)
`id` int, `w` varchar(9) => range columns (`id`, `w`) (p0 < (10, 'm'), p1 < (20, maxvalue))
`id` varbinary(9) not null => range columns (`id`) (p0 < (x'41'), p1 < (x'e697a5'), p2 < (maxvalue))
`id` datetime(3) => range columns (`id`) (p0 < ('2000-01-01 00:00:00.5'), p1 < ('2024-02-29'))
`id` date, `w` int => list columns (`id`, `w`) (p0 in (('2024-02-29',1),('1970-01-01',null)))
`id` datetime => list columns (`id`) (p0 in ('2024-02-29', null), p1 in ('1970-01-01 23:59:59'))
`id` bigint unsigned => list (`id`) (p0 in (0,1,2,3,4), p1 in (18446744073709551615,7,8))
`id` int => range (`id` + 5) (p0 < (10), p1 < (30), p2 < maxvalue)
`id` int => range (abs(`id`)) (p0 < (10), p1 < (30), p2 < maxvalue)
`id` date not null => hash (year(`id`)) partitions 4
`id` datetime not null => range (to_seconds(`id`)) (p0 < (63000000000), p1 < maxvalue)
`id` date => range (extract(year from `id`)) (p0 < (2000), p1 < maxvalue)
`id` date not null => hash (month(`id`)) partitions 5
`id` int, `w` int => key (`id`, `w`) partitions 3
`id` int not null auto_increment primary key => key () partitions 2
`id` int primary key => linear hash (`id`) partitions 4
`id` int, `w` int, primary key (`w`, `id`) clustered => hash (`w`) partitions 3
`id` varchar(9), `w` int, primary key (`id`, `w`) nonclustered => range (`w`) (p0 < (20), p1 < maxvalue)
`id` int, unique key `u1` (`id`) => hash (`id`) partitions 2
`id` varchar(9) charset gbk => range columns (`id`) (p0 < ('b'), p1 < ('日'), p2 < (maxvalue))
`id` varchar(9) charset latin1 => list columns (`id`) (p0 in ('a','A','abc'), p1 in ('é','',null))
`id` bit(8) => range (`id`) (p0 < (7), p1 < maxvalue)
`id` year => range (`id`) (p0 < (1990), p1 < (2020), p2 < maxvalue)
`id` time => range columns (`id`) (p0 < ('01:00:00'), p1 < (maxvalue))
`id` timestamp not null => hash (unix_timestamp(`id`)) partitions 3
`id` enum('a','b') not null => key (`id`) partitions 2
`id` decimal(9,2) => range columns (`id`) (p0 < (1.5), p1 < (maxvalue))
`id` int, `gp` int as (`id` % 7) stored => range (`gp`) (p0 < (0), p1 < (4), p2 < maxvalue)
`id` int, `gp` int as (`id` div 10) virtual => list (`gp`) (p0 in (null,0,1,2,-1), p1 in (3,4,5,6,-2))
`id` int, `gp` varchar(20) as (concat('x', `id`)) => range columns (`gp`) (p0 < ('x3'), p1 < (maxvalue))
`id` date => hash (weekday(`id`)) partitions 3
`id` date => hash (dayofmonth(`id`)) partitions 3
`id` datetime => list (quarter(`id`)) (p0 in (null,0,1), p1 in (2,3,4))
`id` date => range (dayofyear(`id`)) (p0 < (100), p1 < maxvalue)
`id` time => hash (time_to_sec(`id`)) partitions 3
`id` datetime => hash (yearweek(`id`)) partitions 3
`id` date => range (datediff(`id`, '2000-01-01')) (p0 < (0), p1 < maxvalue)
`id` datetime => hash (hour(`id`) + minute(`id`)) partitions 4
`id` datetime => hash (microsecond(`id`)) partitions 2
`id` int => hash (mod(`id`, 5)) partitions 3
`id` int => hash (`id` * 2 - 7) partitions 3
`id` decimal(9,2) => hash (floor(`id`)) partitions 3
`id` decimal(9,2) => range (ceiling(`id`)) (p0 < (0), p1 < maxvalue)
`id` bigint unsigned => hash (`id` div 3) partitions 3
`id` bigint unsigned => list (`id` % 4) (p0 in (0,1,null), p1 in (2,3))
`id` int unsigned, `w` int => hash (`id` + `w`) partitions 3
`id` bit(8) => hash (`id`) partitions 2
`id` year => list (`id`) (p0 in (0,1970,2000,null), p1 in (1901,2155,1969))
`id` timestamp not null => range (floor(unix_timestamp(`id`))) (p0 < (1300000000), p1 < maxvalue)
`id` date => range columns (`id`) (p0 < ('0000-00-00'), p1 < ('2010-00-00'), p2 < (maxvalue))
`id` char(3) collate utf8mb4_unicode_ci => list columns (`id`) (p0 in ('a','ss',''), p1 in ('日','b',null))
`id` binary(3) => range columns (`id`) (p0 < ('b'), p1 < (maxvalue))
`id` bigint primary key auto_random(3) => hash (`id`) partitions 3
`id` int, `w` varchar(9) collate utf8mb4_general_ci => key (`w`) partitions 3"""
"""How the key is defined, and how the table is partitioned by it."""
CHANGES: Final = """\
add column {new} {definition}{place}
add column {new} {definition}{place}
add column ({new} {definition}, {new} {definition})
add column {new} bigint as (`v` + {n}) virtual
add column {new} {computed}{place}
add column if not exists {new} {definition}
drop column {column}
drop column if exists {column}
modify column {column} {definition}{place}
modify column {column} {near}{place}
modify column {column} {near}{place}
change column {column} {new} {near}
change column {column} {new} {definition}{place}
rename column {column} to {new}
rename column {column} to {swapped}, rename column {swapped} to {column}
alter column {default}
alter column {column} drop default
modify column {nullable}
modify column {again}
modify column `id` bigint auto_random(4)
modify column `id` bigint auto_increment
auto_id_cache {n}
add column {new} int default 7, add index {index} ({parts}), drop column {column}
convert to character set utf8mb4
convert to character set utf8mb4 collate utf8mb4_unicode_ci
collate utf8mb4_general_ci
default charset utf8mb4 collate utf8mb4_unicode_ci
comment 'table {n}'
auto_increment {bound}
force auto_increment {fresh}
auto_random_base {bound}
shard_row_id_bits 3
add index {index} ({parts})
add unique index {index} ({parts})
add index {index} ((lower(`id`)))
add unique index {index} ((`v` div 2))
add index {index} ((cast(`v` as char(3))))
drop index {index}
drop primary key
add primary key ({parts}) nonclustered
rename index {index} to `i{n}`
alter index {index} invisible
add constraint `ck{n}` check (`v` > 5)
engine = MyISAM
row_format = compact
add column {new} {definition} {attribute}{place}
add column {new} {definition} {attribute}
modify column {column} {near} {attribute}
modify column {column} {recharset}
modify column {column} {recharset}
convert to character set gbk
convert to character set latin1
convert to charset binary
default charset latin1
drop index {index}, add index {index} ({parts})
drop index {index}, add unique index `i{n}` ({parts})
add index {index} ({parts}), rename index `i{n}` to {index}
add index {index} (`v` desc) comment 'k {n}'
add unique key {index} (`v`, (`v` + 1))
add index {index} ((cast(`j` as char(9) array)))
add index using btree ({parts})
add fulltext index {index} ({parts})
add check (`v` <> {n})
drop check `ck{n}`
alter column {column} set default (uuid())
rename column {column} to {new}, add column {column} {definition}
add column {new} {definition} after `v`, drop column {column}, rename index {index} to `i{n}`
modify column {column} {near} first, modify column `v` bigint
change column `v` {new} bigint, add column `v` int default {n}
drop column {column}, add column {column} {definition}
drop column if exists {column}, add column if not exists {new} {definition}, comment 'c {n}'
algorithm = inplace, lock = none, add column {new} {definition}
algorithm = instant, modify column {column} {near}
disable keys
force
order by `v`
compression = 'zlib'
key_block_size = 8
auto_id_cache 1
pre_split_regions = 2
auto_random_base = {bound}
shard_row_id_bits = 0
ttl = `ts` + interval {n} month
ttl_enable = 'ON'
ttl_job_interval = '1h'
remove ttl
placement policy pp1
stats_options = default
modify column `g1` bigint as (`v` * 3) virtual
modify column `g2` {computed}
change column `g1` {new} bigint as (`v` * 2) virtual
modify column `gk` bigint as (`id` + 2)
add index {index} (`g1`), add unique index `ug` (`g2`)
add unique index {index} ((left(`id`, 2)))
drop column `g1`
drop primary key, add primary key ({parts}) nonclustered
drop column {column}, drop index {index}
rename column `v` to {new}, add column `v` bigint not null default {n}
alter column {column} drop default, alter column {column} set default null
modify column {column} {near} comment 'é😀\\''
add column {new} enum('b','a','日') not null default 'a'
modify column {column} enum('c','b','a')
modify column {column} set('q','r','p')
modify column {column} varchar(5) charset latin1
modify column {column} char(3) collate utf8mb4_general_ci
modify column {column} timestamp
modify column {column} datetime(2)
modify column {column} decimal(6,1)
modify column {column} bit(5)
modify column {column} year
modify column {column} json
comment 'é😀 \\''
charset utf8
rename column {column} to {recased}
change column {column} {recased} {near}
rename index {index} to {recased_index}
add column ({new} {definition}, {new} {definition}, {new} {definition}), add index {index} (`v`)
add constraint `Ü x` unique ({parts})
add column {new} {definition} unique, drop column {column}, add unique ({parts})
drop index `v`, drop index `v_2`, add key (`v`)
modify column {column} {definition} first, rename column `v` to {new}, add column `v` int first
alter column {column} set default null, modify column {column} {near}
comment 'it''s -- no /* comment */ `x` # "q"' """
DDL: Final[dict[float, str]] = {
    26.0: "alter table {table} {change}",
    7.0: "alter table {table} {change}, {change}\nalter table {table} {change}, {change}, {change}",
    1.0: """\
create table {spare} ({key}, `v` int{columns}){set}
create table {spare} ({key}, `v` int{columns}){set}
create table {spare} ({parted_key}
create table {spare} ({parted_key}
create table {spare} like {table}
create table if not exists {spare} ({key}, `v` int{columns}, check (`v` < 40)) engine = MEMORY
create table {spare} ({key}, `v` int default nextval(a.`s1`){columns})
create table {spare} ({key}, `v` int{columns}{indexes}){set} comment 'of {n}' auto_increment {bound}
create table {spare} ({key}, `v` int{columns}{indexes}) shard_row_id_bits 4 pre_split_regions 2
create table {spare} ({key}, `v` int, `ts` timestamp) ttl = `ts` + interval 10 year ttl_enable = 'OFF'
create table {spare} ({key}, `v` int{columns}) placement policy = `pp1`
create table {spare} (`v` int{columns}{indexes}, {key})
create table {spare} ({key}, `v` int{columns}, `j` json, `j1` varchar(9) as (`j` ->> '$.a') virtual)
create table {spare} ({key}, `v` int not null default 7{columns}){set} auto_id_cache 1 pre_split_regions 2
create table {spare} ({key}, `v` int{columns}, constraint `Ü x` unique (`v`), index (`v`), key (`v`))
create table {bare_spare} ({key}, `v` int{columns}) /* no `t` */
create table {bare_spare} like {bare}
create table {ansi_spare} ({key}, `v` int{columns}) comment 'it''s -- `no` /* comment */ "q"'
create table {spare} ({key}, `v` int, `select` text, `Group` varchar(20), `ORDER by` date, `KEY` int not null)
create table {spare} ({key}, `v` int{many_columns})""",
    8.0: """\
create index {index} on {table} ({parts})
create unique index {index} on {table} ({parts})
create unique index if not exists {index} on {table} ({parts}) invisible
alter table {table} add index {index} ((`v` + 1))
drop index {index} on {table}
drop index if exists {index} on {table}
alter table {table} rename index {index} to `i{n}`
alter table {table} alter index {index} invisible
alter table {table} alter index {index} visible
alter table {table} add primary key ({parts})
alter table {table} drop primary key
create index {index} on {table} ((`v` + {n}), `v` desc) comment 'k'
create unique index {index} on {table} ((concat(`v`, 'x')))
create index {index} on {table} ((cast(`j` as unsigned array)), `v`)
create index if not exists {index} on {table} (`v`) using hash
admin cancel ddl jobs {job}""",
    6.0: """\
rename table {table} to {spare}
alter table {table} rename to {spare}
rename table {table} to a.`tmp`, {other} to {table}, a.`tmp` to {other}
rename table {table} to {spare}, {other} to {table}
rename table {table} to {cased}
alter table {table} rename as {schema}.`r{n}`
rename table {table} to {schema}.`r{n}`, {other} to {spare}
alter table {table} {change}, rename to {spare}
alter table {table} rename = {spare}
alter table {table} rename {spare}
rename /* to `x` */ tables {table} /*!40000 to */ {spare}
alter /*T! table */ {table} /*!80000 rename as */ {spare}
rename table {bare} to {bare_spare}
alter table {bare} rename {bare_spare}, comment 'a to b'
rename table {ansi} to {ansi_spare}
rename table {bare} to {schema}.`r{n}`, {other} to {bare}""",
    4.0: """\
truncate table {table}
drop table if exists {gone}
drop table if exists {gone}, {other}
drop table if exists {gone}, {table}, `b`.`t1`
drop tables {gone}
recover table {dropped}
flashback table {dropped}
flashback table {dropped} to `f{n}`
flashback table {table} to `f{n}`
truncate {bare}
truncate table {ansi}
drop table {bare}, {bare_spare}
drop table if exists {gone} cascade
drop /* table `a`.`t1` */ table {gone} restrict""",
    14.0: """\
alter table {parted} add partition (partition p{n} values less than ({bound}))
alter table {parted} add partition (partition p{n} values less than (maxvalue))
alter table {parted} add partition (partition p{n} values in ({bound}, {n}))
alter table {parted} add partition (partition p{n} values in ('x{n}', 'w{n}'))
alter table {parted} add partition partitions {n}
alter table {parted} coalesce partition 1
alter table {parted} drop partition {partition}
alter table {parted} drop partition {partition}, {partition}
alter table {parted} truncate partition {partition}
alter table {parted} truncate partition {partition}, {partition}
alter table {parted} truncate partition all
alter table {parted} reorganize partition {split}
alter table {parted} reorganize partition {split}
alter table {parted} last partition less than (400)
alter table {parted} merge first partition less than (100)
alter table {parted} first partition less than (50)
alter table {parted} add partition (partition `P {n}` values less than ({bound}) comment 'q''s')
alter table {parted} add partition if not exists (partition p{n} values less than ({bound}))
alter table {parted} add partition (partition p{n} values less than ({bound}, maxvalue))
alter table {parted} add partition (partition p{n} values in (null))
alter table {parted} drop partition if exists {partition}
alter table {parted} rebuild partition {partition}
alter table {parted} partition {partition} placement policy default
alter table {parted} partition {partition} attributes 'merge_option=deny'
alter table {parted} partition by hash (`id`) partitions 3
alter table {parted} remove partitioning
alter table {parted} reorganize partition
{exchange}
{exchange}
{exchange}
create table {spare} like {parted}
alter table {parted} partition by key (`id`) partitions 2
alter table {parted} partition by range columns (`id`) (partition p0 values less than (maxvalue))
alter table {parted} add partition partitions 1
alter table {parted} coalesce partition 2
alter table {parted} drop partition {partition}, add partition (partition p{n} values less than ({bound}))
alter table {parted} rename column `id` to {new}
alter table {parted} modify column `id` bigint
alter table {parted} add unique index `up` ({parts})""",
    3.0: """\
create or replace view {schema}.`v{n}` as select * from {table}
drop view if exists {schema}.`v{n}`
create sequence if not exists {schema}.`s{n}` start with {bound} increment by 3
alter sequence {schema}.`s{n}` increment by 7
drop sequence if exists {schema}.`s{n}`
create or replace algorithm = merge sql security invoker view {schema}.`v{n}` (`x`, `y z`) as select 1, 'é\\''
create view {schema}.`v{n}` as select * from {schema}.`v1` union all select count(*) from {table}
create or replace view {schema}.`v{n}` as with c as (select 1 as `x`) select * from c with check option
drop view if exists {schema}.`v{n}`, {schema}.`v1`
create sequence {schema}.`s{n}` start 5 minvalue -9 maxvalue 9 increment -2 cycle cache 3 comment 'q'
create sequence if not exists {schema}.`s{n}` nocache
alter sequence {schema}.`s{n}` restart with {n} nocycle
rename table {schema}.`s{n}` to {schema}.`v{n}`
rename table {schema}.`v{n}` to {schema}.`w{n}`""",
    1.5: """\
drop database if exists `b`
create database if not exists `b`
alter database {schema} charset utf8mb4 collate utf8mb4_general_ci
alter database {schema} charset utf8mb4 collate utf8mb4_bin
alter database {schema} charset latin1
alter database {schema} charset gbk
alter database {schema} collate utf8mb4_unicode_ci
create database if not exists `b` charset utf8 collate utf8_general_ci
create schema `b` default charset gbk
alter database {schema} placement policy = pp1
alter database {schema} placement policy default
flashback database `b`""",
    2.0: """\
alter table {table} add constraint `fk1` foreign key (`v`) references {other} (`id`) on delete cascade
alter table {table} add constraint `fk1` foreign key (`v`) references {other} (`id`) on update set null
alter table {table} drop foreign key `fk1`
create table {spare} (`id` int primary key, `v` bigint, foreign key (`v`) references {other} (`id`){deeds})
create table {spare} (`id` int primary key, `v` int, foreign key (`v`) references {other} (`id`){deeds})
create table a.`fk{n}` (`id` int primary key, `v` int, foreign key (`v`) references a.`fk{n}` (`id`){deeds})
create table a.`fk{n}` (`id` int primary key, `v` int, foreign key (`v`) references a.`fk{n}` (`id`){deeds})
create table a.`fc{n}` (`id` int, `v` int, foreign key (`v`) references a.`fk{n}` (`id`) on update cascade)
alter table a.`fc{n}` drop foreign key `fk_1`
drop table if exists a.`fc{n}`, a.`fk{n}`""",
    2.2: """\
/* é `x` -- */ alter table {table} {change}
/*!40101 alter table {table} {change} */
/*T! alter table {table} */ alter table {table} {change};
prepare d1 from 'alter table {table} add column {new} bigint default {n}, add index {index} (`v`)'
prepare d1 from 'alter table {table} modify column `v` bigint not null default {n}'
prepare d1 from 'rename table {table} to {spare}'
prepare d1 from 'truncate table {table}'
prepare d1 from 'create table {spare} like {table}'
prepare d1 from 'alter table {parted} truncate partition {partition}'
prepare d1 from 'alter table {parted} drop partition {partition}'
set @d = concat('alter table {table} drop column ', '{new}')
prepare d1 from @d
execute d1
execute d1
execute d1
deallocate prepare d1
admin cleanup index {table} {index}
admin recover index {table} {index}
alter table {table} compact tiflash replica""",
    2.1: """\
alter table {table} cache
alter table {table} nocache
alter table {table} ttl = `ts` + interval 10 year ttl_enable = 'OFF'
alter table {table} remove ttl
alter table {table} placement policy default
alter table {table} attributes 'merge_option=deny'
create placement policy if not exists pp1 followers=1
alter table {table} set tiflash replica 0
create global temporary table a.`gt{n}` (`id` int) on commit delete rows
create resource group if not exists rg1 ru_per_sec = 1000
alter placement policy pp1 followers = {n}
drop placement policy if exists pp1
alter resource group rg1 ru_per_sec = 500
create user if not exists u{n}
admin check table {table}
optimize table {table}
split table {table} by (7)
lock tables {table} write
unlock tables
create statistics if not exists s1 (correlation) on {table} (`id`, `v`)""",
}
EXPRESSIONS: Final = """\
{a} + 1
{a} - {b}
-{a}
{b}
concat({a}, {b})
concat({b}, 'é')
upper({a})
reverse({b})
repeat({a}, 2)
left({a}, 3)
{a} | 5
~{b}
{a} / 3
{a} div 0
{b} * 1e300
coalesce({a}, {b})
nullif({a}, {b})
if({a} is null, {b}, null)
cast({b} as char)
cast({b} as json)
cast({b} as decimal(20, 4))
cast({b} as unsigned)
convert({b} using latin1)
json_object('k', {b})
json_set({a}, '$.x', {b})
json_array_append({a}, '$', 1.0)
date_add({a}, interval 1 month)
addtime({a}, '25:00:00.5')
now(6)
utc_timestamp()
unix_timestamp({b})
from_unixtime(1.5e9 + 0.123456)
uuid()
default({a})
x'e697a5'
b'1010'
_latin1 x'e9'
_gbk x'c4e3'
_binary 'é'
true
date '2024-02-29'
timestamp '2024-03-31 02:30:00.123456'
'2024-03-31 02:30:00+05:30'
time '-100:00:00.5'
0x7f41
1e-320
.5e0
'1.5abc'
' 7 '
hex({b})
bin({b})
sha2({b}, 256)
nextval(a.`s1`)
last_insert_id()
row_count()
@x
(select max(`v`) from {other})
(select count(*) from {other} y where y.`v` > {n})"""
"""Values of a column `a` of a row; `b` is another one."""
ROWS: Final[dict[float, str]] = {
    7.0: """\
update {table} set {crossed} {where}
update {table} set {crossed}, {crossed} {where}
insert ignore into {table} {rows} on duplicate key update {crossed_others}
insert into {table} {rows} on duplicate key update {crossed}, {crossed}
replace into {table} {computed_row}
insert ignore into {table} {computed_row}""",
    2.5: """\
prepare p1 from 'update {table} set `v` = ? where {id} = ?'
prepare p1 from 'insert ignore into {table} ({id}, `v`) values (?, ?)'
prepare p1 from 'replace into {table} ({id}, `v`) values (?, ?), (?, 3)'
set @x = {value}, @y = {value}, @z = {n}
execute p1 using @x, @z
execute p1 using @x, @y
execute p1 using @z, @x, @y
insert ignore into {table} ({id}, `v`) values (@x, @y)""",
    1.3: """\
start transaction
begin optimistic
commit and chain
insert into {table} values {whole}
replace into {table} values {whole}
delete from {table} where {id} in (select `v` from {other})
delete from {table} where `v` = (select max(`v`) from {other})
update {table} set `v` = (select max(`v`) from {other})
insert ignore into {table} ({id}, `v`) select {id}, `v` from {table} union all select {n}, {n}
insert into {table} ({id}, `v`) table a.`t1` limit {n}
load data local infile '{file}' ignore into table {table} fields terminated by ',' (@a, `v`) set {id} = @a
delete quick from {table} where `v` % 3 = 1 limit {n}
delete a, b from {table} a left join {other} b on a.`v` = b.`v` where a.`v` = {n}
update {table} a, {other} b set a.`v` = b.`v`, b.`v` = a.`v` where a.{id} = b.`v`
select setval(a.`s1`, {bound})
do nextval(a.`s1`)
insert into {table} ({id}, `v`) values (nextval(a.`s1`), nextval(a.`s1`))
insert high_priority into {table} {rows} as new on duplicate key update `v` = new.`v` + 1
load data local infile '{file}' ignore into table {table} character set latin1 fields terminated by ','
{series}
update {table} set {id} = {id} + 1000 order by {id} desc
delete from a.`fk{n}` limit 2
update a.`fk{n}` set `id` = `id` + 50 order by `id` desc limit 3
insert ignore into a.`fk{n}` (`id`, `v`) values ({n}, null), ({n} + 10, {n}), ({n} + 20, {n})
insert ignore into a.`fc{n}` (`id`, `v`) select `id`, `id` from a.`fk{n}`
set @@insert_id = {bound}
set @@last_insert_id = {n}""",
    16.0: """\
insert into {table} {rows}
insert into {table} {rows}
insert ignore into {table} {rows}
insert into {table} () values ()
insert into {table} {defaults}
insert into {table} set {assignments}""",
    4.0: "replace into {table} {rows}\nreplace into {table} {rows}\nreplace into {table} set {assignments}",
    4.1: """\
insert into {table} {rows} on duplicate key update {assignments}
insert into {table} {rows} on duplicate key update {values}
insert ignore into {table} {rows} on duplicate key update {others}
insert into {table} ({id}, `v`) select `v`, {n} from {other} limit {n} on duplicate key update `v` = {n}""",
    0.6: "insert ignore into {table} {many}\nreplace into {table} {many}",
    2.0: """\
insert ignore into {table} select * from {other} limit {n}
replace into {table} select * from {table} limit {n}
insert into {table} ({id}, `v`) select {bound} + `v`, `v` from {other} limit {n}
replace into {table} ({id}, `v`) select {bound} + `v`, `v` from {other} limit {n}""",
    12.0: "update {table} set {assignments} {where}",
    # Not of keys: if the new one is there already, TiDB keeps the row, but its binlog has deleted it.
    1.0: "update ignore {table} set {others} {where}",
    6.0: "delete from {table} {where}",
    1.2: """\
select * from {table} {where} for update
load data local infile '{file}' replace into table {table} fields terminated by ',' ({id}, `v`)
load data local infile '{file}' ignore into table {table} fields terminated by ',' ({id}, `v`)""",
    0.1: "{bulk}",
    0.4: """\
insert ignore into {table} {large}
replace into {table} {large}
update {table} set {largely} {where}""",
    3.0: "update {table} set {id} = {id} + 1 order by {id} desc limit {n}\n"
    "update {table} set {id} = {id} - 1 order by {id} limit {n}",
    1.5: """\
update {table} x join {other} y on x.`v` = y.`v` set {prefixed} where y.`v` < {n}
update {table} x join {other} y on x.`v` = y.`v` set {prefixed}, y.`v` = y.`v` + 1 where y.`v` < {n}
delete x from {table} x join {other} y on x.`v` = y.`v` where y.`v` < {n}
delete x, y from {table} x join {other} y on x.`v` = y.`v` where y.`v` < {n}""",
    1.0001: """\
update {table} set `v` = `v` * -1
update {table} set {id} = default limit 2
update {table} set {id} = {n} - {id} where {id} between 0 and {n}
delete from {table} order by {id} desc limit {n}
delete from {table}
update {table} set {assignments}, {id} = {id} order by `v` limit {n}
update {table} set `v` = rand() * 30, `v` = `v` + 1 {where}
batch on {id} limit 3 update {table} set `v` = {n}
batch on {id} limit 2 delete from {table} where `v` > {n}
batch limit 2 delete from {table} where `v` < {n}
batch on {id} limit 3 insert ignore into {table} ({id}, `v`) select 300 + `v`, {n} from {other}
delete from {table} partition (p0) limit {n}
insert into {table} partition (p0) {rows}
with w as (select {id} from {table} limit {n}) delete from {table} where {id} in (select * from w)
savepoint s1
rollback to s1
insert into a.`gt{n}` values ({n})
begin pessimistic
start transaction with causal consistency only
start transaction with consistent snapshot
set transaction isolation level read committed
rollback and chain
release savepoint s1
insert into {table} ({id}, `v`) values ({n}, 1), ({n}, 2), ({n}, 3) on duplicate key update `v` = `v` + 10
update {table} partition (p0) set `v` = {n} where `v` > {n}
delete from x using {table} x join {other} y on x.{id} = y.`v` where y.`v` > {n}
update {table} x, (select max(`v`) m from {other}) z set x.`v` = z.m where x.`v` < {n}
create temporary table if not exists {table} (`id` int, `v` int)
drop temporary table if exists {table}
do sleep(1.5)
do sleep(1.5)
do sleep(1.5)
set time_zone = '+05:45'
set sql_mode = ''
set names gbk
insert into {table} ({id}, `v`, `_tidb_rowid`) values ({n}, {n}, {bound})
update {table} set `v` = {n} where `_tidb_rowid` between {n} and 40
delete from {table} where `_tidb_rowid` < {n}
replace into {table} partition (p1) {rows}
insert into {table} select * from {other} for update
update {table} set {id} = {id} where `v` = {n}
insert into {table} {rows} on duplicate key update {id} = {id} + 100
insert ignore into {table} {rows} on duplicate key update {id} = values({id}), `v` = {n}
update {table} set {id} = -{id}, `v` = {id} limit {n}""",
}
