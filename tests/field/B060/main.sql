-- Ways to write a time
CREATE TABLE plain (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='plain.json', 'format'='json');
SELECT ts FROM plain;
CREATE TABLE nanoseconds (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='nanoseconds.json', 'format'='json');
SELECT ts FROM nanoseconds;
CREATE TABLE iso (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='iso.json', 'format'='json');
SELECT ts FROM iso;
CREATE TABLE zulu (v INT, ts TIMESTAMP_LTZ(3)) WITH ('connector'='filesystem', 'path'='zulu.json', 'format'='json');
SELECT ts FROM zulu;
CREATE TABLE offset (v INT, ts TIMESTAMP_LTZ(3)) WITH ('connector'='filesystem', 'path'='offset.json', 'format'='json');
SELECT ts FROM offset;
CREATE TABLE february (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='february.json', 'format'='json');
SELECT ts FROM february;
CREATE TABLE midnight (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='midnight.json', 'format'='json');
SELECT ts FROM midnight;
CREATE TABLE leap_second (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='leap_second.json', 'format'='json');
SELECT ts FROM leap_second;
CREATE TABLE number (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='number.json', 'format'='json');
SELECT ts FROM number;
