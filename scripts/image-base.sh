# Sourced by the scripts that make images: the files of Debian packages that are installed here, by their own lists of
# files, so that nothing else of this machine gets into an image.

# Those packages and all that they depend on, as far as they are installed: the rest is alternatives not taken.
closure() { # closure PACKAGE...
    apt-cache depends --recurse --installed --no-suggests --no-recommends --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$@" | grep -E '^[a-z0-9]' | sed 's/:any$//' | sort -u |
        { xargs dpkg-query --show --showformat '${db:Status-Status} ${binary:Package}\n' 2>/dev/null || true; } |
        sed -n 's/^installed //p' | sort -u
}

# Paths below /, one a line, of what exists here.
files_of_packages() { # files_of_packages PACKAGE...
    {
        # /bin, /lib, ... are links into /usr, and belong to no package on a merged Debian
        printf '%s\n' bin sbin lib lib64 etc/alternatives etc/passwd etc/group etc/ld.so.cache etc/ld.so.conf.d \
            etc/nsswitch.conf var/lib/dpkg/status
        closure "$@" | xargs dpkg-query --listfiles |
            sed -E 's,^/,,; s,^(bin|sbin|lib|lib32|lib64|libx32)/,usr/\1/,' |
            grep -vE '^(\.|bin|sbin|lib|lib32|lib64|libx32)?$' |
            grep -vE '^usr/share/(doc|man|info|locale|lintian|bug)(/|$)' |
            grep -vE '^(proc|sys|dev|tmp|run|root)(/|$)' # made empty
    } | sort -u | while read -r path; do
        [ -e "/$path" ] || [ -L "/$path" ] || continue
        printf '%s\n' "$path"
    done | sort -u
}

# Empty folders of every root, in a folder.
empty_folders() { # empty_folders FOLDER
    mkdir -p "$1"/{proc,sys,dev,tmp,run,root}
    chmod 1777 "$1/tmp"
}
