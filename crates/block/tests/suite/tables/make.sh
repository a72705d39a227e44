#!/bin/sh
# Makes the partition tables beside this file with sfdisk and sgdisk (Debian's fdisk and gdisk), and notes how sfdisk
# reads them; needs python3 too. They are kept instead of made by each test run because these tools call sync(2),
# which waits for every file system of the machine.
#
# A file has a line `size BYTES`, a line `part NUMBER : ...` for each partition from `sfdisk -d`, and a line
# `sector NUMBER HEX` for each sector that is not all zeroes, without its trailing zeroes.
set -eu
cd "$(dirname "$0")"
image=$(mktemp)
trap 'rm -f "$image"' EXIT

blank() { # MEBIBYTES
    rm -f "$image"
    truncate -s "$1M" "$image"
}

note() { # NAME
    {
        echo "size $(stat -c %s "$image")"
        sfdisk -d "$image" | sed -n "s|^$image *|part |p"
        python3 - "$image" <<'END'
import sys
data = open(sys.argv[1], "rb").read()
for at in range(0, len(data), 512):
    sector = data[at:at + 512].rstrip(b"\0")
    if sector:
        print("sector", at // 512, sector.hex())
END
    } >"$1.txt"
}

table() { # NAME MEBIBYTES < SCRIPT
    blank "$2"
    sfdisk -q --no-reread --no-tell-kernel "$image"
    note "$1"
}

table mbr_primary 64 <<END
label: dos
label-id: 0x12345678
2048,4096,L,*
8192,2048,82
,,7
END
table mbr_gap 64 <<END
label: dos
3: start=2048, size=4096, type=83
END
table mbr_logical 64 <<END
label: dos
2048,4096,83
8192,90000,5
10240,2048,83
14336,4096,82
20480,8192,83
40960,2048,8e
END
table mbr_lba 64 <<END
label: dos
4: start=4096, size=100000, type=f
5: start=8192, size=2048, type=83
END
# Later logical partitions lie before earlier ones: the chain runs backwards.
table mbr_backwards 64 <<END
label: dos
2048,100000,5
40960,2048,83
20480,2048,83
4096,2048,83
END
table gpt 64 <<END
label: gpt
start=2048,size=4096,type=U,name="EFI"
5: start=8192,size=2048,type=L,name="Größe 1"
type=L
END
blank 16
sgdisk -n 1:2048:+4M -n 2:0:0 -c 2:last "$image" >/dev/null
note gpt_sgdisk
