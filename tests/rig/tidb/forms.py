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
    "|float unsigned|mediumint unsigned zerofill|bigint(3) zerofill|bit(24)"
)
TEMPORAL: Final = (
    "date|datetime|datetime(3)|datetime(6)|timestamp|timestamp(6)|time|time(6)|time(3)|datetime(1)"
)
TEXTS: Final = "char(10)|varchar(20)|varchar(255)|text|tinytext|mediumtext|char(2)|varchar(700)|longtext"
BINARY: Final = "binary(5)|varbinary(30)|blob|tinyblob|binary(16)|longblob|mediumblob"
OTHER: Final = (
    "json|enum('a','b','c')|enum('','x y','日本')|set('p','q','r')|set('a','A b')"
    "|enum('1','0','2')|enum('a ','b')"
)
SETS: Final = (
    "||| charset gbk| charset utf8| charset binary| collate utf8mb4_general_ci"
    "| collate utf8mb4_unicode_ci| collate utf8_general_ci| charset latin1"
    "| charset ascii| collate gbk_chinese_ci"
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
varchar(99) as (md5(`v`))"""
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
`id` int auto_increment, key (`id`)"""
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
`id` tinyint not null => range (`id`) (p0 < (-5), p1 < (7), p2 < maxvalue)"""
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
row_format = compact"""
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
create table {spare} ({key}, `v` int not null default 7{columns}){set} auto_id_cache 1 pre_split_regions 2""",
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
admin cancel ddl jobs {job}""",
    6.0: """\
rename table {table} to {spare}
alter table {table} rename to {spare}
rename table {table} to a.`tmp`, {other} to {table}, a.`tmp` to {other}
rename table {table} to {spare}, {other} to {table}
rename table {table} to {cased}""",
    4.0: """\
truncate table {table}
drop table if exists {gone}
drop table if exists {gone}, {other}
recover table {dropped}
flashback table {dropped}
flashback table {dropped} to `f{n}`
flashback table {table} to `f{n}`""",
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
{exchange}
{exchange}
{exchange}
create table {spare} like {parted}""",
    3.0: """\
create or replace view {schema}.`v{n}` as select * from {table}
drop view if exists {schema}.`v{n}`
create sequence if not exists {schema}.`s{n}` start with {bound} increment by 3
alter sequence {schema}.`s{n}` increment by 7
drop sequence if exists {schema}.`s{n}`""",
    1.5: """\
drop database if exists `b`
create database if not exists `b`
alter database {schema} charset utf8mb4 collate utf8mb4_general_ci
alter database {schema} charset utf8mb4 collate utf8mb4_bin
alter database {schema} charset latin1
flashback database `b`""",
    2.0: """\
alter table {table} add constraint `fk1` foreign key (`v`) references {other} (`id`) on delete cascade
alter table {table} add constraint `fk1` foreign key (`v`) references {other} (`id`) on update set null
alter table {table} drop foreign key `fk1`
create table {spare} (`id` int primary key, `v` bigint, foreign key (`v`) references {other} (`id`){deeds})
create table {spare} (`id` int primary key, `v` int, foreign key (`v`) references {other} (`id`){deeds})""",
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
create resource group if not exists rg1 ru_per_sec = 1000""",
}
ROWS: Final[dict[float, str]] = {
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
create temporary table if not exists {table} (`id` int, `v` int)
drop temporary table if exists {table}""",
}
