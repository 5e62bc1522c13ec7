#!/bin/sh
# Usage: rootfs.sh PROGRAM DIRECTORY
# Assembles the root file system of the container image: the program, the libraries that it loads, certificates, and a user.
set -eu

program=$1
root=$2

mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/data" "$root/tmp"
install -m 0755 "$program" "$root/usr/bin/qo"

# ldd prints `name => path (address)` for libraries, and `path (address)` for the loader.
ldd "$program" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done

cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
echo 'qo:x:65532:65532:qo:/data:/sbin/nologin' >"$root/etc/passwd"
echo 'qo:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
chown 65532:65532 "$root/data"
chmod 1777 "$root/tmp"
