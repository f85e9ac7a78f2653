# What `carole repo` does on a host: repository.sh checkout|update DIR BRANCH
#
# Prints the commit's hash, its short hash and its subject, a line each. What goes wrong is told on
# standard error, and nothing is forced: no change is lost, no branch moves but forward.

action=$1
folder=$2
branch=$3

fail() {
    echo "$1" >&2
    exit 1
}

case $folder in
"~") folder=$HOME ;;
"~/"*) folder=$HOME/${folder#"~/"} ;;
esac

# Nobody is there to answer a question.
GIT_TERMINAL_PROMPT=0
export GIT_TERMINAL_PROMPT

command -v git >/dev/null || fail "git is not installed"
cd "$folder" 2>/dev/null || fail "there is no folder $folder"
inside=$(git rev-parse --is-inside-work-tree) || exit 1
[ "$inside" = true ] || fail "$folder is not the working tree of a git repository"

changes=$(git status --porcelain --untracked-files=no) || exit 1
if [ -n "$changes" ]; then
    fail "$folder has uncommitted changes, in $(echo "$changes" | wc -l | tr -d ' ') of its files"
fi

# The remote that the branch follows, else origin, else the only one.
remote=$(git config "branch.$branch.remote")
if [ -z "$remote" ] || [ "$remote" = . ]; then
    if git config remote.origin.url >/dev/null; then
        remote=origin
    else
        remote=$(git remote)
    fi
fi
case $remote in
"") fail "$folder has no remote to fetch from" ;;
*[[:space:]]*) fail "$folder has several remotes, and none of them is called origin" ;;
esac

theirs=refs/remotes/$remote/$branch
ours=refs/heads/$branch
git fetch --quiet "$remote" "+refs/heads/$branch:$theirs" >&2 || exit 1

if git show-ref --verify --quiet "$ours"; then
    if [ "$action" = update ]; then
        ahead=$(git rev-list --count "$theirs..$ours") || exit 1
        behind=$(git rev-list --count "$ours..$theirs") || exit 1
        if [ "$ahead" != 0 ] && [ "$behind" != 0 ]; then
            fail "$branch has diverged: $ahead commits here are not on $remote, $behind there are not here"
        fi
    fi
    git checkout --quiet "$branch" -- >&2 || exit 1
else
    # A clone of a single branch cannot follow another.
    git checkout --quiet -b "$branch" --track "$theirs" >/dev/null 2>&1 ||
        git checkout --quiet -b "$branch" --no-track "$theirs" >&2 || exit 1
fi

if [ "$action" = update ]; then
    git merge --quiet --ff-only "$theirs" >&2 || exit 1
fi
git log -1 --format='%H%n%h%n%s' "$ours"
