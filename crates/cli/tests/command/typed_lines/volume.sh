# Fills the working directory with what a small device has, and with odd names, attributes and files of all types.
set -euo pipefail
umask 022
mkdir -p etc/ssh etc/init.d usr/bin usr/lib var/log/app var/tmp tmp run dev home/{alice,bob,shared} boot/dtb \
    srv/www/{css,js,data} opt/{app,app-new} links odd attrs acl/dir lib/modules/5.10/kernel/drivers
cat >etc/passwd <<'END'
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www:/srv/www:/bin/false
alice:x:1000:1000:Alice:/home/alice:/bin/sh
bob:x:1001:1001:Bob:/home/bob:/bin/sh
END
printf '%s\n' root:x:0: daemon:x:1: www-data:x:33: users:x:100:alice,bob alice:x:1000: bob:x:1001: >etc/group
echo 'root:*:19700:0:99999:7:::' >etc/shadow
echo device-7 >etc/hostname
printf 'Welcome to \\n \\l\n\n' >etc/issue
printf '# <device>\t<mount point>\n/dev/mmcblk0p2\t/\text4\tdefaults\t0 1\n' >etc/fstab
printf '# sshd\nPort 22\n\nPermitRootLogin no\n#PasswordAuthentication yes\n' >etc/ssh/sshd_config
printf -- '-----BEGIN KEY-----\nc2VjcmV0\n-----END KEY-----\n' >etc/ssh/ssh_host_rsa_key
ln etc/ssh/ssh_host_rsa_key etc/ssh/backup.key
printf '#!/bin/sh\nmount -a\nifconfig eth0 10.0.0.7\n' >etc/init.d/rcS
echo 'nameserver 192.168.1.1' >etc/resolv.conf
printf 'rotate 4\npassword=none\n' >etc/logrotate.conf
printf 'NAME="Tiny"\nVERSION_ID="7.2"\nID=tiny\n' >usr/lib/os-release
ln -s ../usr/lib/os-release etc/os-release
{ printf '\177ELF\002\001\001\0'; seq 1 30000 | tr '\n' '\0'; } >usr/bin/busybox
ln -s busybox usr/bin/sh
ln -s busybox usr/bin/ls
printf '\177ELF ping\0' >usr/bin/ping
for day in 1 2 3 4 5 6 7 8 9; do
    echo "Jan  $day 10:0$day:00 device-7 sshd[10$day]: Failed password for root from 10.1.2.$day port 4${day}00"
    echo "Jan  $day 10:0$day:30 device-7 sshd[10$day]: Accepted publickey for alice from 192.168.1.$day"
done >var/log/auth.log
seq 60 | sed 's/.*/Jan  1 00:00:& device-7 kernel: line &/' >var/log/syslog
echo booted >var/log/messages
echo old | gzip -n >var/log/kern.log.1.gz
printf 'start\nstop\n' >var/log/app/app.log
printf '%s\n' ls 'cd /srv' 'sudo mount /dev/sda1 /mnt' 'ssh bob@10.0.0.8' 'cat notes.txt' 'sudo rm -rf /var/log' 'echo password' \
    >home/alice/.bash_history
echo 'alias ll="ls -l"' >home/alice/.bashrc
mkdir 'home/alice/My Documents'
printf 'Report\tof 2024\r\nwith caf\303\251\n' >'home/alice/My Documents/report 2024.txt'
printf 'buy milk\ncall Bob\nmy password is on the wall\n' >home/alice/notes.txt
cp home/alice/notes.txt 'home/alice/notes (copy).txt'
{ printf '\377\330\377\340\0\020JFIF\0\001'; seq 1 4000; } >home/alice/photo.jpg
echo write >home/bob/todo
echo ours >home/shared/plan
printf '<html>\n<h1>hello</h1>\n</html>\n' >srv/www/index.html
echo 'h1 { color: red }' >srv/www/css/style.css
echo 'let x = 1;' >srv/www/js/app.js
truncate -s 2M srv/www/data/sparse.img
printf end | dd of=srv/www/data/sparse.img bs=4096 seek=300 conv=notrunc status=none
(
    cd opt/app
    mkdir -p bin src include build/empty
    printf '#!/bin/sh\nexec app\n' >bin/run.sh
    printf '{\n  "port": 8080,\n  "debug": false\n}\n' >config.json
    cp config.json config.json.bak
    printf '#include "util.h"\n/* TODO: arguments */\nint main(void) { return util(); }\n' >src/main.c
    printf 'int util(void) { return 0; }\n' >src/util.c
    printf 'int util(void); // TODO\n' >include/util.h
    printf '\177ELF\0object TODO' >build/main.o
    printf 'app: src/main.c src/util.c\n\tcc -o $@ $^\n' >Makefile
    printf '# App\n\nRuns.\n' >README.md
)
cp -r opt/app/. opt/app-new
sed -i s/8080/9090/ opt/app-new/config.json
sed -i 's/return 0/return 1/' opt/app-new/src/util.c
rm -r opt/app-new/config.json.bak opt/app-new/build
echo new >opt/app-new/NEWS
echo one >links/hard1
ln links/hard1 links/hard2
ln -s nowhere links/dangling
ln -s /etc/passwd links/abs
ln -s loop links/loop
ln -s ../home links/home
for name in 'name with spaces' $'tab\tname' $'new\nline' -dash 'ünï' '*star*' 'back\slash' "quote'name"; do
    echo "$name" >"odd/$name"
done
{ printf 'MZ zImage'; seq 1 20000; } >boot/vmlinuz
cp boot/vmlinuz boot/zImage
printf x | dd of=boot/zImage bs=1 seek=5000 conv=notrunc status=none
printf 'bootargs=console=ttyS0,115200 root=/dev/mmcblk0p2\nbootcmd=bootz\n' >boot/uEnv.txt
printf '\320\015\376\355' >boot/dtb/board.dtb
printf '\177ELF module' >lib/modules/5.10/kernel/drivers/foo.ko
echo 'kernel/drivers/foo.ko:' >lib/modules/5.10/modules.dep
mknod dev/console c 5 1
mknod dev/null c 1 3
mknod dev/sda b 8 0
mkfifo run/fifo
for name in immutable.txt append.log nodump xattr.txt; do echo "$name" >"attrs/$name"; done
setfattr -n user.comment -v 'a comment' attrs/xattr.txt
setfattr -n user.origin -v 'https://example.org/?a="b"' attrs/xattr.txt
setfattr -n user.bin -v 0x00ff10 attrs/xattr.txt
echo text >acl/file

chown -R 1000:1000 home/alice
chown -R 1001:1001 home/bob
chown -h 4242:4242 home/shared/plan
chgrp users home/shared 2>/dev/null || chgrp 100 home/shared
chown 33:33 srv/www/index.html srv/www/css
chmod 600 etc/shadow etc/ssh/* home/alice/.bash_history
chmod 755 etc/init.d/rcS usr/bin/busybox opt/app*/bin/run.sh
chmod 4755 usr/bin/ping
chmod 700 etc/ssh home/alice
chmod 2775 home/shared
chmod 1777 tmp var/tmp
setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 usr/bin/ping
setfacl -m u:1000:rw,g:100:r,m::rw acl/file
setfacl -m u:1001:rwx acl/dir
setfacl -m d:u:1000:rwx,d:g:33:rx acl/dir
find . -depth -exec touch -h -d '2024-03-01 12:00:00 UTC' {} +
touch -h -d '2023-11-05 08:30:15.123456789 UTC' home/alice/photo.jpg opt/app/Makefile etc/fstab
touch -h -d '2024-05-20 23:59:59 UTC' opt/app/src/main.c var/log/syslog links/dangling
touch -d '1999-12-31 23:59:59 UTC' boot/dtb/board.dtb
chattr +i attrs/immutable.txt
chattr +a attrs/append.log
chattr +d attrs/nodump
