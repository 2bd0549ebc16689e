"""What a host's shell is given to read, for each thing that is asked of it.

Decides: the folders on a host, who has which place on it, and when a node lives: the process of its agent,
by number, start and boot. Never: waits for a node to become anything.
Follows: a host needs Linux, a shell and the usual small commands; Python and uv may be brought.

    <home>/places/<n>                    a link to the node that has the place, below <home>
    <home>/<deployment>/nodes/<tag>/     one node: launch.json agent.id agent.log, and what its agent keeps
    <home>/<deployment>/ended/<tag>      the end of the log of one that has ended
    <home>/<deployment>/agents/<digest>/ the agent's package and environment, shared by the nodes
    <home>/<deployment>/daemon.<provider>.json      where the tunnel to the daemon is
"""

from __future__ import annotations

COMMON = r"""
umask 077
base="$home/$deployment"
nodes="$base/nodes"
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)

# Whether the process $1 that began at $2 lives.
alive() {
    stat=$(sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null) || return 1
    set -- "$2" $stat
    [ "$#" -gt 20 ] && [ "$2" != Z ] && [ "$2" != X ] && [ "${21}" = "$1" ]
}

# The processes whose environment names the folder $1.
marked() {
    grep -lzs -x -F "SKY_AGENT_HOME=$1" /proc/[0-9]*/environ 2>/dev/null | sed 's#^/proc/\([0-9]*\)/.*#\1#'
}

# The last that a node's log says.
words() {
    tail -c 4096 "$1/agent.log" 2>/dev/null | tr '\t\r' '  ' | grep -a '[^[:space:]]' |
        tail -n 6 | tr '\n' ' ' | sed 's/  */ /g' | cut -c1-600
}

give_back_place() {
    for place in "$home"/places/*; do
        [ "$(readlink "$place")" = "$deployment/nodes/$1" ] && rm -f "$place"
    done
}

# What is left of a node goes, but for the end of its log.
finish() {
    mkdir -p "$base/ended"
    : >"$base/ended/$1"
    tail -c 65536 "$nodes/$1/agent.log" >"$base/ended/$1" 2>/dev/null
    give_back_place "$1"
    mv "$nodes/$1" "$base/ended/.$1.$$" 2>/dev/null
    rm -rf "$base/ended/.$1.$$" 2>/dev/null || {
        chmod -R u+rwx "$base/ended/.$1.$$"
        rm -rf "$base/ended/.$1.$$"
    }
}

# The next step towards the end of the node $1; true when it is reached.
press() {
    folder="$nodes/$1"
    deadline=$(cat "$folder/ending")
    now=$(date +%s)
    for round in 1 2 3; do
        found=$(marked "$folder")
        alive "$pid" "$ticks" && found="$pid $found"
        [ -n "$found" ] || { finish "$1"; return 0; }
        if [ "$now" -lt "${deadline:-0}" ] && [ "$((deadline - now))" -le "$grace" ]; then
            for one in $found; do
                grep -qx "$one" "$folder/told" 2>/dev/null && continue
                printf '%s\n' "$one" >>"$folder/told"
                kill -TERM "$one" 2>/dev/null
            done
            return 1
        fi
        kill -KILL $found 2>/dev/null
        sleep 0.1
    done
    return 1
}

# Says what there is of the node $1.
look() {
    folder="$nodes/$1" pid="" ticks="" begun="" state=pending reason=""
    [ -d "$folder" ] || {
        [ -e "$base/ended/$1" ] && printf 'node\t%s\tgone\t\tended\t\n' "$1"
        return
    }
    if [ -f "$folder/ending" ] && [ ! -f "$folder/agent.id" ]; then
        # One that is about to begin finds that somebody was here first.
        printf '0 0 none\n' >"$folder/id.$$" && ln "$folder/id.$$" "$folder/agent.id" 2>/dev/null
    fi
    [ -f "$folder/agent.id" ] && read -r pid ticks begun <"$folder/agent.id"
    if [ -z "$begun" ]; then state=pending
    elif [ "$begun" = "$boot" ] && alive "$pid" "$ticks"; then state=running
    elif [ "$begun" != "$boot" ]; then state=gone reason="the host was restarted"; pid=0 ticks=0
    else state=gone
    fi
    if [ -f "$folder/ending" ]; then
        press "$1" && { printf 'node\t%s\tgone\t\tended\t\n' "$1"; return; }
        [ "$state" = gone ] && state=running reason=""
    elif [ "$state" = gone ]; then
        if [ ! -f "$folder/gone" ]; then
            left=$(marked "$folder")
            [ -z "$left" ] || kill -KILL $left 2>/dev/null
            said=$(words "$folder")
            [ -n "$reason" ] || reason="the agent ended by itself${said:+; its last words: $said}"
            printf '%s\n' "$reason" >"$folder/gone"
            give_back_place "$1"
        fi
        reason=$(cat "$folder/gone")
    fi
    [ -f "$folder/tunnel" ] && way=tunnel || way=""
    printf 'node\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$state" "$pid" "$reason" "$way" \
        "$(cat "$folder/launch.json" 2>/dev/null)"
}
"""

FACTS = r"""
system=$(uname -s)
[ "$system" = Linux ] || printf 'refused\tcapability_mismatch\tit runs %s; nodes need Linux\n' "$system"
printf 'cores\t%s\n' "$(nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo)"
printf 'memory_kb\t%s\n' "$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
printf 'architecture\t%s\n' "$(uname -m)"
there="$home"
while [ ! -d "$there" ]; do there=$(dirname "$there"); done
printf 'disk_kb\t%s\n' "$(df -Pk "$there" | awk 'NR == 2 { print $4 }')"
used=0
for place in "$home"/places/*; do
    [ -L "$place" ] && [ -d "$home/$(readlink "$place")" ] && used=$((used + 1))
done
printf 'used\t%s\n' "$used"
command -v nvidia-smi >/dev/null 2>&1 && timeout 5 nvidia-smi --query-gpu=name,memory.total \
    --format=csv,noheader,nounits </dev/null 2>/dev/null | sed 's/^/gpu	/'
"""

PREPARE = r"""
refuse() {
    printf 'refused\t%s\t%s\nwhole\n' "$1" "$2"
    [ -f "$nodes/$tag/agent.id" ] || { give_back_place "$tag"; rm -rf "$nodes/$tag"; }
    exit 0
}
[ "$(uname -s)" = Linux ] || refuse capability_mismatch "it runs $(uname -s); nodes need Linux"
[ -d "$nodes/$tag" ] || [ ! -e "$base/ended/$tag" ] || { look "$tag"; echo whole; exit 0; }
[ ! -f "$nodes/$tag/agent.id" ] && [ ! -f "$nodes/$tag/ending" ] || { look "$tag"; echo whole; exit 0; }
said=$(mkdir -p "$nodes" "$home/places" "$base/agents/$agents" "$base/bin" 2>&1) ||
    refuse capacity "its folder $home cannot be made: $said"
free=$(df -Pk "$base" | awk 'NR == 2 { print int($4 / 1024) }')
[ "${free:-$free_mb}" -ge "$free_mb" ] ||
    refuse capacity "its disk is full: $free MB are free where $home is, at least $free_mb are needed"
mkdir -p "$nodes/$tag" 2>/dev/null || refuse capacity "the folder $nodes/$tag cannot be made"
own="" n=0
for place in "$home"/places/*; do [ "$(readlink "$place")" = "$deployment/nodes/$tag" ] && own="$place"; done
while [ -z "$own" ] && [ "$n" -lt "$places" ]; do
    place="$home/places/$n"
    [ ! -L "$place" ] || [ -d "$home/$(readlink "$place")" ] || rm -f "$place"
    ln -sn "$deployment/nodes/$tag" "$place" 2>/dev/null
    [ "$(readlink "$place")" = "$deployment/nodes/$tag" ] && own="$place"
    n=$((n + 1))
done
[ -n "$own" ] || refuse capacity "all its places for nodes are taken (max_nodes is $places)"
file="$nodes/$tag/launch.json"
{ printf '%s' "$launched" >"$file.$$" && mv "$file.$$" "$file"; } 2>/dev/null ||
    refuse capacity "nothing can be written to $nodes/$tag"
printf 'base\t%s\n' "$base"
printf 'platform\t%s-%s\n' "$(uname -s)" "$(uname -m)"
PATH="$PATH:$HOME/.local/bin:$base/bin"
"$base/agents/$agents/venv/bin/python" -c 'import sky.agent' >/dev/null 2>&1 || printf 'lacks\tagent\n'
python=""
for one in python3 python3.13 python3.12 python3.11; do
    "$one" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 &&
        python="$one"
done
command -v uv >/dev/null 2>&1 || [ -n "$python" ] || printf 'lacks\tuv\n'
reach() {
    if command -v curl >/dev/null 2>&1; then curl -q -fsSk -m 5 -o /dev/null "$1"
    elif command -v wget >/dev/null 2>&1; then wget -q -T 5 -O /dev/null "$1"
    else python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5)' "$1"; fi
}
if [ -n "$url" ] && reach "$url/api/health" </dev/null >/dev/null 2>&1; then printf 'reaches\tyes\n'; fi
"""

BRING = r"""
file="$base/$path"
cat >"$file.$$" && chmod "$mode" "$file.$$" && mv "$file.$$" "$file" || { rm -f "$file.$$"; exit 1; }
"""

BEGIN = r"""
folder="$nodes/$tag"
place=""
for one in "$home"/places/*; do
    [ "$(readlink "$one")" = "$deployment/nodes/$tag" ] && place="${one##*/}"
done
{ [ -n "$place" ] && cd "$folder" 2>/dev/null; } || { look "$tag"; echo whole; exit 0; }
{
    printf 'PATH="$PATH:$HOME/.local/bin:%s"\nexport PATH\n' "$base/bin"
    if [ "$gpus_total" -gt 0 ]; then
        visible="" n=0
        while [ "$n" -lt "$gpus" ]; do visible="$visible,$((place * gpus + n))"; n=$((n + 1)); done
        printf 'export CUDA_VISIBLE_DEVICES=%s\n' "${visible#,}"
    fi
    told="$base/daemon.$provider.json"
    [ -z "$tunnel" ] || printf 'export SKY_AGENT_URL_FILE="%s" SKY_AGENT_TUNNELLED=1\n' "$told"
} >surroundings.sh
[ -z "$tunnel" ] || : >tunnel
ln -sfn "$base/agents/$agents" shared
cat >start.sh <<'TEXT'
# Whoever is here first is the agent, from here on under this number.
read -r stat <"/proc/$$/stat"
set -- ${stat##*) }
printf '%s %s %s\n' "$$" "${20}" "$(cat /proc/sys/kernel/random/boot_id)" >"id.$$"
ln "id.$$" agent.id || exit 0
[ ! -f ending ] || exit 0
. ./surroundings.sh
. ./program.sh
TEXT
printf '%s' "$program" >program.sh
if [ "$(wc -c <program.sh)" != "${#program}" ] || [ ! -s start.sh ]; then
    printf 'refused\tcapacity\tits disk is full: nothing can be written to %s\nwhole\n' "$folder"
    give_back_place "$tag"
    rm -rf "$folder"
    exit 0
fi
setsid sh ./start.sh >>agent.log 2>&1 </dev/null &
n=0
while [ ! -f agent.id ] && [ "$n" -lt 50 ]; do sleep 0.1; n=$((n + 1)); done
look "$tag"
"""

DROP = r"""
[ -f "$nodes/$tag/agent.id" ] || { give_back_place "$tag"; rm -rf "$nodes/$tag"; }
"""

LOOK = r"""
look "$tag"
"""

LISTING = r"""
rm -rf "$base"/ended/.[a-zA-Z0-9]*
find "$base"/agents/*/venv.* -maxdepth 0 -mmin +60 -exec rm -rf {} + 2>/dev/null
for path in "$nodes"/*/; do
    [ -d "$path" ] || continue
    tag=${path%/}
    tag=${tag##*/}
    if [ -f "$path/gone" ] && [ ! -f "$path/ending" ] && [ -n "$(find "$path/gone" -mmin +10)" ]; then
        finish "$tag"
    else
        look "$tag"
    fi
done
ls -t "$base/ended" 2>/dev/null | tail -n +51 | while read -r old; do rm -f "$base/ended/$old"; done
printf 'told\t%s\n' "$(cat "$base/daemon.$provider.json" 2>/dev/null)"
"""

TERMINATE = r"""
if [ -d "$nodes/$tag" ] && [ ! -f "$nodes/$tag/ending" ]; then
    printf '%s\n' "$(($(date +%s) + grace))" >"$nodes/$tag/ending.$$" &&
        mv "$nodes/$tag/ending.$$" "$nodes/$tag/ending" || {
        # A full disk keeps no word of it: it ends at once.
        rm -f "$nodes/$tag/agent.log"
        printf '0\n' >"$nodes/$tag/ending"
    }
fi
look "$tag"
"""

TELL = r"""
file="$base/daemon.$provider.json"
mkdir -p "$base" && printf '%s' "$told" >"$file.$$" && mv "$file.$$" "$file"
"""
