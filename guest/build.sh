#!/bin/bash
# Builds the tiny guest image from the distribution's own packages: cloud
# kernel, busybox, dropbear, jq, the QEMU guest agent, and the files in
# overlay/.  The disk starts under BIOS and UEFI.
#
#   guest/build.sh [OUTPUT]        default: build/guest.qcow2 of the project
#
# Beside OUTPUT a folder of the same name without its suffix receives the
# kernel, initrd.img and the bare rootfs.ext4, for a direct start, and the
# downloaded packages.  Nothing is built again while the inputs (this script,
# overlay/) are unchanged; FORCE=1 builds all the same, with fresh packages.
# No mounts, no loop devices: works as root, and as anyone under fakeroot.
set -euo pipefail
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
output=$(realpath -m "${1:-$here/../build/guest.qcow2}")
parts=${output%.*} cache=${output%.*}/packages

stamp=$(cd "$here" && find build.sh overlay -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
if [ -z "${FORCE:-}" ] && [ -s "$output" ] && [ "$(cat "$parts/stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "guest image: $output is up to date"
    exit 0
fi
# program -> the package that brings it
tools="apt-get:apt dpkg-deb:dpkg objdump:binutils strip:binutils modprobe:kmod depmod:kmod cpio:cpio zstd:zstd
  xz:xz-utils mmd:mtools mcopy:mtools mkfs.vfat:dosfstools syslinux:syslinux grub-mkimage:grub-common
  mke2fs:e2fsprogs sfdisk:fdisk qemu-img:qemu-utils openssl:openssl"
[ "$(id -u)" = 0 ] || tools="$tools fakeroot:fakeroot"
mbr=/usr/lib/syslinux/mbr/mbr.bin grub_modules=/usr/lib/grub/x86_64-efi
missing=$(for t in $tools; do command -v "${t%%:*}" >/dev/null || echo "${t##*:}"; done
    [ -e "$mbr" ] || echo syslinux-common
    [ -d "$grub_modules" ] || echo grub-efi-amd64-bin)
if [ -n "$missing" ]; then
    echo "guest image: missing tools; as root: apt-get install --no-install-recommends $(echo "$missing" | sort -u | tr '\n' ' ')" >&2
    exit 69
fi

[ "$(id -u)" = 0 ] || exec fakeroot "$0" "$output"

[ -z "${FORCE:-}" ] || rm -rf "$cache"
mkdir -p "$cache"
# One builder at a time: a second one waits, then finds the image made.
exec 9>"$parts/lock"
flock 9
if [ -z "${FORCE:-}" ] && [ -s "$output" ] && [ "$(cat "$parts/stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- packages: the kernel, the programs, and every library these depend on
for meta in linux-image-cloud-amd64 linux-image-virtual linux-image-kvm; do
    kernel=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-[0-9]/{print $2; exit}')
    [ -z "$kernel" ] || break
done
[ -n "$kernel" ] || { echo "guest image: apt knows no cloud kernel (apt-get update?)" >&2; exit 69; }
version=${kernel#linux-image-}
programs="busybox-static dropbear-bin jq qemu-guest-agent e2fsprogs"
libraries=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances $programs | grep -E '^z?lib' | grep -v ':' | sort -u)
modules=$(apt-cache pkgnames "linux-modules-$version" | grep -x "linux-modules-$version" || true)
all=$work/all
mkdir -p "$all"/usr/{bin,sbin,lib,lib64}
for d in bin sbin lib lib64; do ln -s "usr/$d" "$all/$d"; done
absent=
for p in $kernel $modules $programs $libraries; do
    ls "$cache/${p}"_*.deb >/dev/null 2>&1 || absent="$absent $p"
done
if [ -n "$absent" ]; then
    echo "guest image: fetching $(echo "$absent" | wc -w) packages"
    (cd "$cache" && apt-get download -q -o APT::Sandbox::User=root $absent >/dev/null)
fi
for p in $kernel $modules $programs $libraries; do
    dpkg-deb --fsys-tarfile "$cache/${p}"_*.deb | tar -x --keep-directory-symlink -C "$all"
done

# --- programs, and the libraries that they need
root=$work/root libdir=usr/lib/x86_64-linux-gnu
mkdir -p "$root/$libdir" "$root"/{bin,sbin,usr/bin,usr/sbin,lib64,lib,etc/dropbear,dev,proc,sys,run,tmp,mnt,root,home/guest,var/lib,sysroot}
chmod 1777 "$root/tmp"
chmod 700 "$root/root"
install -m755 "$all/bin/busybox" "$root/bin/busybox"
for a in $("$all/bin/busybox" --list-full); do
    [ -e "$root/$a" ] || { mkdir -p "$root/$(dirname "$a")"; ln -s /bin/busybox "$root/$a"; }
done
need() {
    local so f
    for so in $(objdump -p "$1" | awk '/NEEDED/{print $2}'); do
        [ ! -e "$root/$libdir/$so" ] || continue
        case $so in ld-linux*) continue ;; esac
        f=$(find "$all/usr/lib" -name "$so" | head -1)
        [ -n "$f" ] || { echo "guest image: no package brings $so" >&2; exit 1; }
        install -m644 "$(readlink -f "$f")" "$root/$libdir/$so"
        need "$f"
    done
}
loader=$(find "$all/usr/lib64" "$all/usr/lib" -name ld-linux-x86-64.so.2 -type f | head -1)
[ -n "$loader" ] || loader=$(find "$all/usr/lib" -name 'ld-2*.so' | head -1)
install -m755 "$loader" "$root/lib64/ld-linux-x86-64.so.2"
for f in usr/sbin/dropbear usr/bin/dropbearkey usr/bin/jq usr/sbin/qemu-ga sbin/resize2fs; do
    rm -f "$root/$f"
    install -D -m755 "$all/$f" "$root/$f"
    need "$all/$f"
done
echo "/$libdir" >"$root/etc/ld.so.conf"
ln -s "../$libdir" "$root/lib/x86_64-linux-gnu"

# --- drivers
early="virtio_pci virtio_mmio virtio_blk virtio_scsi sd_mod ata_piix ata_generic nvme"
late="sr_mod isofs nls_cp437 nls_iso8859-1 nls_ascii vfat virtio_net virtio_balloon virtio_console virtio-rng
  virtio_input evdev button sg i6300esb virtio_mem 8021q vmw_vsock_virtio_transport 9pnet_virtio 9p virtiofs"
depmod -b "$all" "$version"
for m in $early $late; do
    modprobe -d "$all" -S "$version" --show-depends "$m" 2>/dev/null || true
done | awk '$1 == "insmod"{print $2}' | sort -u | while read -r ko; do
    target=$root/lib/modules/${ko##*/lib/modules/}
    install -D -m644 "$ko" "$target"
    case $target in
        *.xz) xz -d "$target"; target=${target%.xz} ;;
        *.zst) zstd -q -d --rm "$target"; target=${target%.zst} ;;
    esac
    strip -g "$target"
done
cp "$all/lib/modules/$version"/modules.{builtin,order}* "$root/lib/modules/$version/"
depmod -b "$root" "$version"

# --- our files and the accounts (console login: root or guest, password "guest")
cp -a "$here/overlay/." "$root/"
chmod -R u+w "$root/etc" "$root/usr" "$root/init"
echo $early >"$root/etc/modules.early"
echo $late >"$root/etc/modules.late"
echo guest >"$root/etc/hostname"
echo "127.0.0.1 localhost" >"$root/etc/hosts"
printf 'root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/home/guest:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\ntty:x:5:\nguest:x:1000:\n' >"$root/etc/group"
hash=$(openssl passwd -6 -salt guest guest)
printf 'root:%s:19000:0:99999:7:::\nguest:%s:19000:0:99999:7:::\n' "$hash" "$hash" >"$root/etc/shadow"
chmod 600 "$root/etc/shadow"
echo /bin/sh >"$root/etc/shells"
printf '\\n login (root or guest, password guest)\n' >"$root/etc/issue"
chown -R 0:0 "$root"
chown -R 1000:1000 "$root/home/guest"

# --- kernel and initramfs; the bare root file system
cp "$all/boot/vmlinuz-$version" "$parts/vmlinuz"
(cd "$root" && find . | sort | cpio --quiet -o -H newc -R +0:+0 | zstd -q -19) >"$parts/initrd.img"
size=$(( $(du -sm "$root" | cut -f1) + 10 ))
rm -f "$parts/rootfs.ext4"
mke2fs -q -t ext4 -L guestroot -d "$root" -m 0 -J size=1 -O ^metadata_csum "$parts/rootfs.ext4" "${size}M"

# --- the disk: MBR; 1: FAT with the kernel, syslinux (BIOS) and GRUB (UEFI); 2: root
cmdline="root=LABEL=guestroot console=tty0 console=ttyS0,115200n8 quiet"
boot=$(( ($(stat -c %s "$parts/vmlinuz") + $(stat -c %s "$parts/initrd.img")) / 1048576 + 8 ))
esp=$work/esp.img raw=$work/disk.raw
truncate -s "${boot}M" "$esp"
mkfs.vfat -n GUESTBOOT "$esp" >/dev/null
printf 'DEFAULT guest\nPROMPT 0\nTIMEOUT 0\nLABEL guest\n  LINUX /vmlinuz\n  INITRD /initrd.img\n  APPEND %s\n' "$cmdline" >"$work/syslinux.cfg"
printf 'search --no-floppy --label GUESTBOOT --set root\nlinux /vmlinuz %s\ninitrd /initrd.img\nboot\n' "$cmdline" >"$work/grub.cfg"
grub-mkimage -O x86_64-efi -d "$grub_modules" -o "$work/bootx64.efi" -p / -c "$work/grub.cfg" \
    fat part_msdos part_gpt linux search search_label normal boot
export MTOOLS_SKIP_CHECK=1
mmd -i "$esp" ::/EFI ::/EFI/BOOT
mcopy -i "$esp" "$work/bootx64.efi" ::/EFI/BOOT/BOOTX64.EFI
mcopy -i "$esp" "$parts/vmlinuz" "$parts/initrd.img" "$work/syslinux.cfg" ::/
syslinux --install "$esp"
truncate -s "$((1 + boot + size + 1))M" "$raw"
printf 'label: dos\n1 : start=1MiB, size=%sMiB, type=ef, bootable\n2 : start=%sMiB, size=%sMiB, type=83\n' \
    "$boot" "$((1 + boot))" "$size" | sfdisk -q "$raw"
dd if="$mbr" of="$raw" bs=440 count=1 conv=notrunc status=none
dd if="$esp" of="$raw" bs=1M seek=1 conv=notrunc,sparse status=none
dd if="$parts/rootfs.ext4" of="$raw" bs=1M seek="$((1 + boot))" conv=notrunc,sparse status=none
# Written beside and renamed: a reader never sees half an image.
qemu-img convert -q -c -O qcow2 "$raw" "$output.new"
mv "$output.new" "$output"
echo "$stamp" >"$parts/stamp"
echo "guest image: $output, $(( $(stat -c %s "$output") / 1048576 )) MB, kernel $version"
