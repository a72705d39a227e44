# Makes `host`: files to copy into the volume, and lists and archives that lines name. The volume's files are below `v.img:`.
set -euo pipefail
umask 022
mkdir -p host/dir/sub work/etc/app work/usr/local/bin work/pkg-1.0/share
printf '127.0.0.1 localhost\n10.0.0.7 device-7\n' >host/hosts
printf '{\n  "port": 80\n}\n' >host/app.conf
echo 'new contents' >host/new.txt
printf '#!/bin/sh\necho deployed\n' >host/script.sh
chmod 755 host/script.sh
echo a >host/dir/a
echo b >host/dir/b
echo c >host/dir/sub/c
ln -s a host/dir/link
chmod 640 host/dir/b
sed -e s/Bob/Robert/ -e /daemon/d v.img:/etc/passwd >host/old-passwd
printf 'sudo\nssh\n' >host/patterns.txt
printf '%s\0' v.img:/etc/hostname 'v.img:/odd/name with spaces' v.img:/etc/nosuch >host/list0
sha256sum v.img:/etc/hostname v.img:/usr/bin/busybox >host/SHA256SUMS
printf '# file: v.img:/etc/hostname\nuser.place="rack 3"\nuser.raw=0sAAECAw==\n\n' >host/attrs.txt
echo 'be good' >work/etc/motd
echo '[app]' >work/etc/app/app.ini
ln -s app.ini work/etc/app/current
printf '#!/bin/sh\n' >work/usr/local/bin/tool
chmod 755 work/usr/local/bin/tool
echo one >work/pkg-1.0/one
ln work/pkg-1.0/one work/pkg-1.0/share/two
find host work -depth -exec touch -h -d '2024-04-01 06:00:00 UTC' {} +
touch -d '2024-06-01 06:00:00 UTC' host/app.conf
tar -C work --owner=alice:1000 --group=alice:1000 -cf host/backup.tar etc usr
tar -C work --owner=root:0 --group=root:0 -czf host/backup.tar.gz pkg-1.0
touch -d '2024-04-01 06:00:00 UTC' host/backup.tar* host
rm -r work
