//! `carole repo` on hosts, each with a clone of its own.

mod fixture;

use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::Finished;
use fixture::hosts::Hosts;

/// Two hosts, each with a clone at `~/work`, and one more clone from which commits are pushed.
struct Repositories {
    hosts: Hosts,
    pusher: PathBuf,
}

impl Repositories {
    fn new() -> Self {
        let hosts = Hosts::new(2);
        let folder = hosts.folder().path().to_owned();
        let origin = folder.join("origin.git");
        let pusher = folder.join("pusher");
        git(
            &folder,
            &["init", "--quiet", "--bare", "-b", "main", "origin.git"],
        );
        git(&folder, &["init", "--quiet", "-b", "main", "pusher"]);
        git(
            &pusher,
            &["remote", "add", "origin", origin.to_str().unwrap()],
        );
        let made = Self { hosts, pusher };
        made.push("main", "first");
        for index in 0..2 {
            let from = origin.to_str().unwrap();
            git(&made.hosts.home(index), &["clone", "--quiet", from, "work"]);
        }
        made
    }

    /// A new commit on a branch of the remote; returns its short hash.
    fn push(&self, branch: &str, subject: &str) -> String {
        commit(&self.pusher, subject);
        git(
            &self.pusher,
            &["push", "--quiet", "origin", &format!("HEAD:{branch}")],
        );
        git(&self.pusher, &["rev-parse", "--short", "HEAD"])
    }

    fn work(&self, index: usize) -> PathBuf {
        self.hosts.home(index).join("work")
    }

    fn head(&self, index: usize) -> String {
        git(&self.work(index), &["rev-parse", "--short", "HEAD"])
    }

    fn carole(&self, words: &[&str]) -> Finished {
        let command: Vec<&str> = ["repo"].iter().chain(words).copied().collect();
        let mut command = self
            .hosts
            .carole(&command, &self.hosts.list(1), &["--path", "~/work"]);
        Finished::new(command.output().unwrap())
    }

    /// The rows of a table: host, commit, subject.
    fn assert_rows(&self, done: &Finished, expected: [(&str, &str); 2]) {
        let rows: Vec<String> = done
            .text()
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected: Vec<String> = expected
            .iter()
            .enumerate()
            .map(|(index, (commit, subject))| {
                format!("{} {commit} {subject}", self.hosts.address(index))
            })
            .collect();
        assert_eq!(rows, expected, "{}", done.stderr);
    }
}

fn commit(folder: &Path, subject: &str) {
    git(
        folder,
        &["commit", "--quiet", "--allow-empty", "-m", subject],
    );
}

fn git(folder: &Path, words: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com"])
        .args(words)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "git {words:?}: {said}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn hosts_come_to_the_same_commit_of_a_branch() {
    let all = Repositories::new();
    let second = all.push("main", "second one");
    let done = all.carole(&["update", "main"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    all.assert_rows(&done, [(&second, "second one"), (&second, "second one")]);
    assert_eq!([all.head(0), all.head(1)], [&*second, &*second]);

    // A branch that the hosts have never seen.
    let feature = all.push("team/feature-1", "it's \"new\"");
    let done = all.carole(&["checkout", "team/feature-1"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    all.assert_rows(
        &done,
        [(&feature, "it's \"new\""), (&feature, "it's \"new\"")],
    );

    // Checking out moves no branch; one host is ahead of the other then.
    let third = all.push("main", "third");
    git(&all.work(0), &["fetch", "--quiet", "origin", "main:main"]);
    let done = all.carole(&["checkout", "main"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    all.assert_rows(&done, [(&third, "third"), (&second, "second one")]);
    assert!(
        done.stderr.contains("2 different commits of main"),
        "{}",
        done.stderr
    );
    let done = all.carole(&["update", "main", "--output", "json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let full = git(&all.pusher, &["rev-parse", "HEAD"]);
    let expected = |index| {
        let host = all.hosts.address(index);
        format!(
            "{{\"host\":\"{host}\",\"commit\":\"{full}\",\"short\":\"{third}\",\"subject\":\"third\"}}\n"
        )
    };
    assert_eq!(done.text(), expected(0) + &expected(1));
}

#[test]
fn nothing_is_forced_and_every_host_s_reason_is_told() {
    let all = Repositories::new();
    let first = all.head(1);
    let told = |done: &Finished, reason: &str| {
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        let expected = format!("  {}: {reason}", all.hosts.address(1));
        assert!(done.stderr.contains(&expected), "{}", done.stderr);
    };

    let done = all.carole(&["checkout", "no-such-branch"]);
    told(
        &done,
        "fatal: couldn't find remote ref refs/heads/no-such-branch",
    );

    // Files that git does not know are nobody's business.
    std::fs::write(all.work(0).join("results"), "1").unwrap();
    std::fs::write(all.work(1).join("code"), "1").unwrap();
    git(&all.work(1), &["add", "code"]);
    let second = all.push("main", "second");
    let done = all.carole(&["update", "main"]);
    let work = all.work(1);
    let reason = format!(
        "{} has uncommitted changes, in 1 of its files",
        work.display()
    );
    told(&done, &reason);
    all.assert_rows(&done, [(&second, "second"), ("-", "failed")]);
    assert_eq!(all.head(1), first);

    git(&work, &["commit", "--quiet", "-m", "own"]);
    let own = all.head(1);
    let done = all.carole(&["update", "main"]);
    told(
        &done,
        "main has diverged: 1 commits here are not on origin, 1 there are not here",
    );
    assert_eq!(all.head(1), own);

    std::fs::rename(&work, all.hosts.home(1).join("elsewhere")).unwrap();
    let done = all.carole(&["update", "main", "--output", "json"]);
    let reason = format!("there is no folder {}", work.display());
    told(&done, &reason);
    assert!(
        done.text().contains(&format!("\"error\":\"{reason}\"")),
        "{}",
        done.text()
    );

    std::fs::create_dir(&work).unwrap();
    let done = all.carole(&["update", "main"]);
    told(&done, "fatal: not a git repository");
}
