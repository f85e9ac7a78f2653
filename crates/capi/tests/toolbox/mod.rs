//! Building the library, the command and programs against them, and running those.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Seconds after which a program that has not ended is killed: its test has failed.
const LIMIT: &str = "120";

/// What was built.
pub(crate) struct Tools {
    carole: PathBuf,
    pub(crate) rust_example: PathBuf,
    static_library: PathBuf,
    include: PathBuf,
    /// Holds `libcarole.so`, which the linker looks for.
    link: PathBuf,
    /// Holds `libcarole.so.0`, which programs look for.
    run: PathBuf,
}

/// Builds what the tests need, once; quick when it is there already.
pub(crate) fn tools() -> &'static Tools {
    static TOOLS: OnceLock<Tools> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let library = build(&["--package", "carole-capi", "--lib"]);
        let command = build(&["--package", "carole-cli", "--bin", "carole"]);
        let example = build(&["--package", "carole-worker", "--example", "all_reduce"]);
        let shared = find(&library, "libcarole.so");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcarole");
        let (link, run) = (folder.join("link"), folder.join("run"));
        point(&link, "libcarole.so", &shared);
        point(&run, "libcarole.so.0", &shared);
        Tools {
            carole: find(&command, "carole"),
            rust_example: find(&example, "all_reduce"),
            static_library: find(&library, "libcarole.a"),
            include: Path::new(env!("CARGO_MANIFEST_DIR")).join("include"),
            link,
            run,
        }
    })
}

/// Makes `folder/name` a link to `target`. Other runs of the tests may do the same just now.
fn point(folder: &Path, name: &str, target: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let fresh = folder.join(format!("{name}.{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(target, &fresh).unwrap();
    std::fs::rename(&fresh, folder.join(name)).unwrap();
}

/// Builds with cargo, in the profile of this test; returns the files that cargo names.
fn build(arguments: &[&str]) -> Vec<PathBuf> {
    let profile = if cfg!(debug_assertions) {
        "test"
    } else {
        "release"
    };
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "build",
        "--quiet",
        "--message-format",
        "json-render-diagnostics",
        "--profile",
        profile,
    ]);
    command
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?} failed");
    let text = String::from_utf8(output.stdout).unwrap();
    let messages = text.lines().map(|line| serde_json::from_str(line).unwrap());
    messages
        .flat_map(|message: serde_json::Value| files(&message))
        .collect()
}

fn files(message: &serde_json::Value) -> Vec<PathBuf> {
    let names = message["filenames"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let files = names.iter().chain([&message["executable"]]);
    files
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .collect()
}

fn find(files: &[PathBuf], name: &str) -> PathBuf {
    let found = files
        .iter()
        .rfind(|file| file.file_name() == Some(OsStr::new(name)));
    found
        .unwrap_or_else(|| panic!("cargo built no {name}: {files:?}"))
        .clone()
}

/// A file or folder under `examples/`.
pub(crate) fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(path)
}

/// A file under `tests/programs/`.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// A folder for one test, emptied.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Which of the two libraries a program is linked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkage {
    Shared,
    Static,
}

/// What a program is written in.
#[derive(Clone, Copy)]
pub(crate) enum Language {
    C,
    Cpp,
    Go,
}

/// How programs of a language are built.
pub(crate) struct Compiler {
    language: Language,
    path: PathBuf,
}

/// The language's compiler; the test fails, saying what to install, where there is none.
pub(crate) fn language(language: Language) -> Compiler {
    let (variable, name, hint) = match language {
        Language::C => ("CC", "cc", "apt-get install gcc libc6-dev"),
        Language::Cpp => ("CXX", "c++", "apt-get install g++"),
        Language::Go => (
            "GO",
            "go",
            "apt-get install golang-go, or https://go.dev/dl",
        ),
    };
    let given = std::env::var_os(variable).map(PathBuf::from);
    let usual = [
        PathBuf::from(name),
        Path::new("/usr/local/go/bin").join(name),
    ];
    let works = |path: &PathBuf| {
        let argument = if name == "go" { "version" } else { "--version" };
        let mut command = Command::new(path);
        command
            .arg(argument)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let path = given.into_iter().chain(usual).find(works);
    let path = path.unwrap_or_else(|| panic!("this test needs {name}; install it: {hint}"));
    Compiler { language, path }
}

impl Compiler {
    /// Builds `source` and returns the program.
    pub(crate) fn build(&self, folder: &Folder, source: &Path, linkage: Linkage) -> PathBuf {
        let tools = tools();
        let binary = folder.path().join("program");
        let mut command = Command::new(&self.path);
        match self.language {
            Language::Go => {
                command
                    .args(["build", "-o"])
                    .arg(&binary)
                    .arg(".")
                    .current_dir(source);
                command
                    .env("CGO_ENABLED", "1")
                    .env("GOFLAGS", "-mod=mod")
                    .env("GOPROXY", "off");
                command.env(
                    "GOCACHE",
                    Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"),
                );
                command.env("CGO_CFLAGS", format!("-I{}", tools.include.display()));
                command.env("CGO_LDFLAGS", format!("-L{}", tools.link.display()));
            }
            Language::C | Language::Cpp => {
                let standard = if matches!(self.language, Language::C) {
                    "c11"
                } else {
                    "c++17"
                };
                command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"]);
                command
                    .arg(format!("-std={standard}"))
                    .arg("-D_GNU_SOURCE")
                    .arg("-I");
                command
                    .arg(&tools.include)
                    .arg(source)
                    .arg("-o")
                    .arg(&binary);
                if linkage == Linkage::Static {
                    command.arg(&tools.static_library).args(["-ldl", "-lm"]);
                } else {
                    command.arg("-L").arg(&tools.link).arg("-lcarole");
                }
                command.arg("-pthread");
            }
        }
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?} failed:\n{errors}");
        binary
    }
}

/// What a program left.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// It ended well and printed these, and each of them once.
    pub(crate) fn succeeds_with(&self, texts: &[&str]) {
        assert_eq!(self.code, Some(0), "{self:#?}");
        for text in texts {
            assert_eq!(
                self.stdout.matches(text).count(),
                1,
                "{text:?} in {self:#?}"
            );
        }
    }
}

/// Runs `program` as one rank without a launcher.
pub(crate) fn run_alone(program: &Path) -> Output {
    run_alone_with(program, &[])
}

/// The same with variables.
pub(crate) fn run_alone_with(program: &Path, variables: &[(&str, &str)]) -> Output {
    run(&[program.as_os_str()], variables)
}

/// Runs `program` as `ranks` ranks.
pub(crate) fn run_ranks(ranks: usize, program: &Path, variables: &[(&str, &str)]) -> Output {
    run_ranks_with(ranks, program, variables, &[])
}

/// The same with arguments.
pub(crate) fn run_ranks_with(
    ranks: usize,
    program: &Path,
    variables: &[(&str, &str)],
    arguments: &[&OsStr],
) -> Output {
    let ranks = ranks.to_string();
    let carole = tools().carole.as_os_str();
    let mut words: Vec<&OsStr> = vec![carole];
    words.extend(["run", "--no-collapse", "-n", &ranks, "--"].map(OsStr::new));
    words.push(program.as_os_str());
    words.extend(arguments);
    run(&words, variables)
}

fn run(words: &[&OsStr], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after", "5", LIMIT])
        .args(words)
        .stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CAROLE_") {
            command.env_remove(name);
        }
    }
    command
        .env("LD_LIBRARY_PATH", &tools().run)
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    Output {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
