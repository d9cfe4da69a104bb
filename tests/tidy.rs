//! The house rules as a test over the repository's own files: who may use whom, where `unsafe` may be,
//! how long a function and a file may be, what must not be committed. Every rule is a function from a
//! file to its findings, and every rule has a test that plants what it must find.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/source.rs"]
mod source;

use source::{Source, attributes, functions, line_of, macro_calls, places_of, reaches, reaches_up, tests, words};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Modules of `src/volume` that are pure: no I/O, no locks.
const PURE: [&str; 8] =
    ["name", "placement", "index", "capacity", "attr", "record/rule", "record/format", "intent/format"];

/// Suites whose every test shows a promise of docs/SEMANTICS.md; `*` stands for any ending.
const PROMISED: [&str; 11] = [
    "core",
    "rename_dir",
    "eviction*",
    "recovery",
    "record",
    "power",
    "kill",
    "faults_room",
    "mount",
    "rescan_mount",
    "counts",
];
/// Macros that make tests of the names that they list (tests/mount/rig.rs).
const TEST_MACROS: [&str; 2] = ["on_a_mount", "in_both_io_modes"];
/// What follows this heading promises nothing.
const NOT_PROMISED: &str = "## Not promised";

type Rule = fn(&Source) -> Vec<String>;

const RULES: [(&str, Rule); 9] = [
    ("every module says what it is", every_module_has_a_head),
    ("fuser stays in the reception", only_the_reception_knows_fuser),
    ("unsafe and libc stay in the cellar", only_the_cellar_is_unsafe),
    ("clap stays at the door", only_the_door_knows_clap),
    ("nobody looks up", nobody_looks_up),
    ("pure modules are pure", pure_modules_do_no_io),
    ("files and functions have a size", files_and_functions_have_a_size),
    ("nothing is left half done", nothing_is_left_half_done),
    ("every exception has a reason", every_exception_has_a_reason),
];

fn every_module_has_a_head(file: &Source) -> Vec<String> {
    let ok = !file.path.starts_with("src/") || file.text.starts_with("//!");
    if ok { Vec::new() } else { vec![file.finding(0, "the file does not start with a `//!` head")] }
}

fn only_the_reception_knows_fuser(file: &Source) -> Vec<String> {
    let outside = file.path.starts_with("src/") && !belongs_to(&file.path, "fuse");
    found(file, outside, places_of(&file.code, "fuser"), "`fuser` outside src/fuse")
}

fn only_the_cellar_is_unsafe(file: &Source) -> Vec<String> {
    let outside = file.path.starts_with("src/") && file.path != "src/sys.rs";
    let mut findings = found(file, outside, places_of(&file.code, "unsafe"), "`unsafe` outside src/sys.rs");
    findings.extend(found(file, outside, places_of(&file.code, "libc"), "`libc` outside src/sys.rs"));
    findings
}

fn only_the_door_knows_clap(file: &Source) -> Vec<String> {
    let door = file.path == "src/main.rs" || belongs_to(&file.path, "cli");
    let outside = file.path.starts_with("src/") && !door;
    found(file, outside, places_of(&file.code, "clap"), "`clap` outside src/main.rs and src/cli")
}

/// Reception (fuse) over workshop (fs) over vault and docks (volume) over cellar (sys).
fn nobody_looks_up(file: &Source) -> Vec<String> {
    let floors: [(&str, &[&str]); 4] = [
        ("sys", &["volume", "fs", "fuse", "cli", "daemon"]),
        ("volume", &["fs", "fuse", "cli", "daemon"]),
        ("fs", &["fuse", "cli", "daemon"]),
        ("fuse", &["cli", "daemon"]),
    ];
    let mut findings = Vec::new();
    for (floor, above) in floors.iter().filter(|(floor, _)| belongs_to(&file.path, floor)) {
        for room in *above {
            let mut places = reaches(&file.code, "crate", room);
            places.extend(reaches_up(&file.code, module_depth(&file.path), room));
            findings.extend(found(file, true, places, &format!("`{floor}` uses `{room}`, which is above it")));
        }
    }
    findings
}

fn pure_modules_do_no_io(file: &Source) -> Vec<String> {
    let pure = PURE.iter().any(|module| belongs_to(&file.path, &format!("volume/{module}")));
    let code = file.shipped_code();
    let mut findings = Vec::new();
    for module in ["fs", "io", "net", "process"] {
        findings.extend(found(file, pure, reaches(&code, "std", module), &format!("`std::{module}` in a pure module")));
    }
    for module in ["rustix", "parking_lot"] {
        findings.extend(found(file, pure, places_of(&code, module), &format!("`{module}` in a pure module")));
    }
    findings
}

fn files_and_functions_have_a_size(file: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = file.shipped_lines();
    if file.path.starts_with("src/") && lines > FILE_LINES_MAX {
        findings.push(format!("{}: {lines} lines without tests, not {FILE_LINES_MAX}", file.path));
    }
    let code = file.shipped_code();
    for function in functions(&code).iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
        let (path, line, name, lines) = (&file.path, function.line, function.name, function.lines);
        findings.push(format!("{path}:{line}: `{name}` has {lines} lines, not {FUNCTION_LINES_MAX}"));
    }
    findings
}

fn nothing_is_left_half_done(file: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for name in ["todo", "unimplemented", "dbg"] {
        findings.extend(found(file, true, macro_calls(&file.code, name), &format!("`{name}!`")));
    }
    let ignored = attributes(&file.code).into_iter().filter(|(_, text)| first_word(text) == Some("ignore"));
    findings.extend(found(file, true, ignored.map(|(at, _)| at).collect(), "an ignored test"));
    // Built from parts, so that this file does not find itself.
    for word in [concat!("FIX", "ME"), concat!("X", "XX")] {
        findings.extend(found(file, true, places_of(&file.text, word), word));
    }
    findings
}

fn every_exception_has_a_reason(file: &Source) -> Vec<String> {
    let is_exception = |text: &str| {
        words(text).any(|(at, word)| matches!(word, "allow" | "expect") && text[at + word.len()..].starts_with('('))
    };
    let bare = |(_, text): &(usize, &str)| is_exception(text) && places_of(text, "reason").is_empty();
    let places = attributes(&file.code).into_iter().filter(bare).map(|(at, _)| at).collect();
    found(file, true, places, "a lint is switched off without a `reason`")
}

/// A finding for each of `places`, if the rule `applies`.
fn found(file: &Source, applies: bool, places: Vec<usize>, what: &str) -> Vec<String> {
    let places = if applies { places } else { Vec::new() };
    places.into_iter().map(|at| file.finding(at, what)).collect()
}

fn first_word(text: &str) -> Option<&str> {
    words(text).next().map(|(_, word)| word)
}

/// Whether `path` is `src/<module>.rs` or a file below `src/<module>/`.
fn belongs_to(path: &str, module: &str) -> bool {
    let inside = path.strip_prefix("src/").and_then(|rest| rest.strip_prefix(module));
    inside.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// How many `super::` lead from the file `path` to the crate's root.
fn module_depth(path: &str) -> usize {
    let parts = path.matches('/').count();
    if path.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// Absolute paths that exist on one developer's machine only.
fn machine_paths(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for needle in [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")] {
        for (at, _) in text.match_indices(needle) {
            // Behind a name, a dot or a brace it is the middle of a path or of a URL.
            let before = text[..at].chars().next_back();
            if !before.is_some_and(|sign| sign.is_alphanumeric() || "_-.}$~".contains(sign)) {
                findings.push(format!("{path}:{}: a path of one machine: {needle}", line_of(text, at)));
            }
        }
    }
    findings
}

/// The tests that a document refers to, as `` `file::name` `` with its line: a path of lower-case words.
fn test_references(markdown: &str) -> Vec<(usize, &str)> {
    const NOT_TESTS: [&str; 5] = ["std", "crate", "libc", "fuser", "kvspan"];
    let is_name = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let mut references = Vec::new();
    for (line, text) in (1..).zip(markdown.lines()) {
        for quoted in text.split('`').skip(1).step_by(2) {
            let parts: Vec<&str> = quoted.split("::").collect();
            if parts.len() > 1 && parts.iter().all(|part| is_name(part)) && !NOT_TESTS.contains(&parts[0]) {
                references.push((line, quoted));
            }
        }
    }
    references
}

/// The tests of each suite: those of `tests/SUITE.rs` and of the files below `tests/SUITE/`.
fn tests_of_suites(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut suites: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in sources {
        let Some(below) = file.path.strip_prefix("tests/") else { continue };
        let suite = below.split('/').next().unwrap_or(below).trim_end_matches(".rs");
        suites.entry(suite).or_default().extend(tests(&file.code, &TEST_MACROS));
    }
    suites
}

/// References of a document to tests that do not exist.
fn dangling_references(markdown: &str, sources: &[Source]) -> Vec<String> {
    let names: BTreeSet<&str> =
        sources.iter().flat_map(|file| functions(&file.code)).map(|function| function.name).collect();
    let suites = tests_of_suites(sources);
    let exists = |reference: &str| {
        let parts: Vec<&str> = reference.split("::").collect();
        match parts[..] {
            // Of a suite it must be a test; in a module of `src` a macro may have made it.
            [suite, name] if suites.contains_key(suite) => suites[suite].contains(name),
            [.., name] => names.contains(name),
            [] => false,
        }
    };
    let dangling = test_references(markdown).into_iter().filter(|(_, found)| !exists(found));
    dangling.map(|(line, reference)| format!("line {line}: there is no test `{reference}`")).collect()
}

/// Tests of the promised suites that a document does not name, or names twice.
fn tests_without_a_promise(markdown: &str, sources: &[Source]) -> Vec<String> {
    let references = test_references(markdown);
    let is_promised = |suite: &str| {
        PROMISED.iter().any(|name| name.strip_suffix('*').map_or(*name == suite, |start| suite.starts_with(start)))
    };
    let mut findings = Vec::new();
    for (suite, names) in tests_of_suites(sources).into_iter().filter(|(suite, _)| is_promised(suite)) {
        for name in names {
            let reference = format!("{suite}::{name}");
            match references.iter().filter(|(_, found)| *found == reference).count() {
                0 => findings.push(format!("no promise names `{reference}`")),
                1 => {}
                times => findings.push(format!("`{reference}` is named {times} times")),
            }
        }
    }
    findings
}

/// Promises, the items of a document's lists, that name no test.
fn promises_without_a_test(markdown: &str) -> Vec<String> {
    let lines: Vec<&str> = markdown.lines().take_while(|line| !line.starts_with(NOT_PROMISED)).collect();
    let promise = |at: usize| {
        let more = lines[at + 1..].iter().take_while(|line| line.starts_with("  "));
        more.fold(lines[at].to_owned(), |item, line| item + "\n" + line)
    };
    let promises = (0..lines.len()).filter(|at| lines[*at].starts_with("- "));
    let bare = promises.filter(|at| test_references(&promise(*at)).is_empty());
    bare.map(|at| format!("line {}: a promise without a test", at + 1)).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of the repository, from its root: what git would commit, else all but build folders.
fn repository_files() -> Vec<String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(root()).output();
    let mut files: Vec<String> = match listed {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            output.stdout.split(|byte| *byte == 0).map(|path| String::from_utf8_lossy(path).into_owned()).collect()
        }
        _ => walk(root()),
    };
    files.retain(|path| root().join(path).symlink_metadata().is_ok_and(|metadata| metadata.is_file()));
    files.sort();
    files
}

fn walk(top: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let entry = entry.expect("a folder of the repository can be read");
            let (path, kind) = (entry.path(), entry.file_type().expect("an entry has a kind"));
            // Cargo marks its target folder, Python its environments.
            let built = ["CACHEDIR.TAG", "pyvenv.cfg"].iter().any(|mark| path.join(mark).exists());
            if kind.is_dir() && !built && entry.file_name() != ".git" {
                folders.push(path);
            } else if kind.is_file() {
                let inside = path.strip_prefix(top).expect("it lies below the top");
                files.push(inside.to_string_lossy().into_owned());
            }
        }
    }
    files
}

/// The text of a file; none if it is not text.
fn text_of(path: &str) -> Option<String> {
    let text = String::from_utf8(std::fs::read(root().join(path)).ok()?).ok()?;
    (!text.contains('\0')).then_some(text)
}

fn rust_sources() -> Vec<Source> {
    let ours = ["src/", "tests/", "benches/", "examples/"];
    let files = repository_files().into_iter();
    let rust = files.filter(|path| path.ends_with(".rs") && ours.iter().any(|folder| path.starts_with(folder)));
    let sources: Vec<Source> = rust.filter_map(|path| Some(Source::new(&path, &text_of(&path)?))).collect();
    for needed in ["src/lib.rs", "tests/tidy.rs"] {
        assert!(sources.iter().any(|file| file.path == needed), "the rules have not seen {needed}");
    }
    sources
}

fn assert_tidy(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n  {}\n", findings.join("\n  "));
}

#[test]
fn the_house_rules_hold() {
    let sources = rust_sources();
    let mut findings = Vec::new();
    for (what, rule) in RULES {
        findings.extend(sources.iter().flat_map(rule).map(|finding| format!("{finding} ({what})")));
    }
    assert_tidy("the house rules", &findings);
}

#[test]
fn no_file_holds_a_path_of_one_machine() {
    let files = repository_files();
    let findings: Vec<String> =
        files.iter().filter_map(|path| Some(machine_paths(path, &text_of(path)?))).flatten().collect();
    assert_tidy("paths", &findings);
}

#[test]
fn every_test_that_the_semantics_name_exists() {
    let markdown = text_of("docs/SEMANTICS.md").expect("docs/SEMANTICS.md is there");
    assert!(!test_references(&markdown).is_empty(), "docs/SEMANTICS.md ties no sentence to a test");
    assert_tidy("docs/SEMANTICS.md", &dangling_references(&markdown, &rust_sources()));
}

#[test]
fn every_promise_has_a_test_and_every_test_a_promise() {
    let markdown = text_of("docs/SEMANTICS.md").expect("docs/SEMANTICS.md is there");
    let mut findings = promises_without_a_test(&markdown);
    findings.extend(tests_without_a_promise(&markdown, &rust_sources()));
    assert_tidy("docs/SEMANTICS.md", &findings);
}

/// The lines at which `rule` finds something in `text`, if it is the file `path`.
fn lines_found(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    let findings = rule(&Source::new(path, text));
    let line = |finding: &String| finding.split(':').nth(1).and_then(|line| line.parse().ok()).unwrap_or(0);
    findings.iter().map(line).collect()
}

#[test]
fn planted_heads_are_found() {
    assert_eq!(lines_found(every_module_has_a_head, "src/a.rs", "use std::fmt;\n//! late\n"), [1]);
    assert_eq!(lines_found(every_module_has_a_head, "src/a/b.rs", ""), [1]);
    assert!(lines_found(every_module_has_a_head, "src/a.rs", "//! a\n").is_empty());
    assert!(lines_found(every_module_has_a_head, "tests/a.rs", "").is_empty());
}

#[test]
fn planted_words_are_found_only_where_they_are_code() {
    let fuser = "//! fuser\nuse fuser::Filesystem;\n// fuser\nlet a = \"fuser\"; let fuser_like = 1;\n";
    assert_eq!(lines_found(only_the_reception_knows_fuser, "src/fs.rs", fuser), [2]);
    assert_eq!(lines_found(only_the_reception_knows_fuser, "src/fuse_like.rs", fuser), [2]);
    assert!(lines_found(only_the_reception_knows_fuser, "src/fuse.rs", fuser).is_empty());
    assert!(lines_found(only_the_reception_knows_fuser, "src/fuse/session.rs", fuser).is_empty());

    let cellar = "#![deny(unsafe_code)]\n/* unsafe */ unsafe { libc::close(0) };\n";
    assert_eq!(lines_found(only_the_cellar_is_unsafe, "src/fs.rs", cellar), [2, 2]);
    assert!(lines_found(only_the_cellar_is_unsafe, "src/sys.rs", cellar).is_empty());

    let door = "use clap::Parser;";
    assert_eq!(lines_found(only_the_door_knows_clap, "src/config.rs", door), [1]);
    for path in ["src/main.rs", "src/cli.rs", "src/cli/mount.rs"] {
        assert!(lines_found(only_the_door_knows_clap, path, door).is_empty());
    }
}

#[test]
fn planted_looks_up_are_found() {
    let up = "use crate::fs::Inode;\nuse crate::{error::{Error, daemon}, fuse};\nlet a = crate :: cli::x();\n";
    assert_eq!(lines_found(nobody_looks_up, "src/volume/disk.rs", up), [1, 2, 3]);
    assert_eq!(lines_found(nobody_looks_up, "src/fs/dir.rs", up), [2, 3]);
    assert_eq!(lines_found(nobody_looks_up, "src/fuse.rs", up), [3]);
    assert!(lines_found(nobody_looks_up, "src/daemon.rs", up).is_empty());
    assert_eq!(lines_found(nobody_looks_up, "src/sys.rs", "use crate::volume::attr::Ino;"), [1]);
    assert!(lines_found(nobody_looks_up, "src/volume.rs", "use crate::{sync, error}; use crate::fsx;").is_empty());

    let by_steps = "use super::super::fs::Inode;\nuse super::fs;\nuse super::super::{attr, daemon};\n";
    assert_eq!(lines_found(nobody_looks_up, "src/volume/disk.rs", by_steps), [1, 3]);
    assert_eq!(lines_found(nobody_looks_up, "src/volume.rs", "use super::fs;"), [1]);
    assert!(lines_found(nobody_looks_up, "src/volume/disk/real.rs", by_steps).is_empty());
}

#[test]
fn planted_io_in_a_pure_module_is_found() {
    let io = "use std::fs::File;\nuse std::{fmt, io::{self, Read}};\nuse parking_lot::Mutex;\nrustix::fs::stat(p);\n\
              #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    let mut lines = lines_found(pure_modules_do_no_io, "src/volume/index/slab.rs", io);
    lines.sort_unstable();
    assert_eq!(lines, [1, 2, 3, 4]);
    assert!(lines_found(pure_modules_do_no_io, "src/volume/disk.rs", io).is_empty());
    assert!(lines_found(pure_modules_do_no_io, "src/volume/name/tests.rs", io).is_empty());
}

/// A function of exactly `lines` lines.
fn function_of(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn planted_giants_are_found() {
    let size: Rule = files_and_functions_have_a_size;
    let (fits, giant) = (function_of(FUNCTION_LINES_MAX), function_of(FUNCTION_LINES_MAX + 1));
    assert!(lines_found(size, "src/a.rs", &fits).is_empty());
    assert_eq!(lines_found(size, "src/a.rs", &format!("{fits}\n{giant}")), [FUNCTION_LINES_MAX + 2]);
    assert_eq!(lines_found(size, "benches/a.rs", &giant), [1]);
    assert!(lines_found(size, "src/a/tests.rs", &giant).is_empty());
    let in_tests = format!("#[cfg(test)]\nmod tests {{\n{giant}}}\n");
    assert!(lines_found(size, "src/a.rs", &in_tests).is_empty());
    assert_eq!(lines_found(size, "src/a.rs", &format!("{in_tests}{giant}")), [FUNCTION_LINES_MAX + 5]);
    let only_a_use = format!("#[cfg(test)]\nuse a::b;\n{giant}");
    assert_eq!(lines_found(size, "src/a.rs", &only_a_use), [3]);

    let line = "//! a\n";
    assert!(size(&Source::new("src/a.rs", &line.repeat(FILE_LINES_MAX))).is_empty());
    let too_long = line.repeat(FILE_LINES_MAX + 1);
    assert_eq!(size(&Source::new("src/a.rs", &too_long)).len(), 1);
    assert!(size(&Source::new("src/a/tests.rs", &too_long)).is_empty());
    let with_tests = format!("{}{}", line.repeat(FILE_LINES_MAX), in_tests);
    assert!(size(&Source::new("src/a.rs", &with_tests)).is_empty());
    let around_tests = format!("{in_tests}{too_long}");
    assert_eq!(size(&Source::new("src/a.rs", &around_tests)).len(), 1);
}

#[test]
fn planted_loose_ends_are_found() {
    let rule: Rule = nothing_is_left_half_done;
    let code = "// todo!()\ntodo!();\nlet s = \"dbg!\";\ndbg !(s);\nunimplemented!{}\n#[ignore = \"slow\"]\nfn a() {}\n\
                if todo != 1 {}\nlet ignore = 1;\n#[ignore]\n";
    let mut lines = lines_found(rule, "tests/a.rs", code);
    lines.sort_unstable();
    assert_eq!(lines, [2, 4, 5, 6, 10]);
    let (fix, x) = (concat!("FIX", "ME"), concat!("X", "XX"));
    let marks = format!("// {fix}: later\n// {x}\n// {x}{x}, as mkstemp has it\n");
    assert_eq!(lines_found(rule, "src/a.rs", &marks), [1, 2]);
}

#[test]
fn planted_exceptions_without_a_reason_are_found() {
    let code = "#[allow(dead_code)]\n#![expect(unused)]\n#[allow(dead_code, reason = \"later\")]\n\
                #[cfg_attr(test, allow(unused))]\n#[expect(\n    unused,\n    reason = \"a\"\n)]\n\
                // #[allow(x)]\n#[allow(unused /* reason */)]\nlet x = y.expect(\"reason\");\n";
    assert_eq!(lines_found(every_exception_has_a_reason, "src/a.rs", code), [1, 2, 4, 10]);
}

#[test]
fn planted_paths_are_found() {
    let (work, home) = (concat!("/wo", "rk/"), concat!("/ho", "me/"));
    let text = format!("cd {work}x\npath=\"{home}me\"\nhttps://example.org{work}a\n$D{home}b\n{work}\n");
    let findings = machine_paths("README.md", &text);
    let places: Vec<&str> = findings.iter().filter_map(|finding| finding.split(": ").next()).collect();
    assert_eq!(places, ["README.md:1", "README.md:5", "README.md:2"]);
}

#[test]
fn planted_dangling_references_are_found() {
    let sources = [
        Source::new("tests/mount.rs", "#[test]\nfn rename_is_atomic() {}\n// fn only_in_a_comment() {}\n"),
        Source::new("src/a.rs", "proptest! { #[test] fn any_name_works(a in 0..9) {} }\n"),
    ];
    let markdown = "- A rename is atomic (`mount::rename_is_atomic`, `a::tests::any_name_works`).\n\
                    - `entry_ttl` and `std::fs::rename` and `Placement::owner` are no tests.\n\
                    - Nothing is lost (`mount::nothing_is_lost`,\n  `mount::only_in_a_comment`).\n";
    let lines: Vec<usize> = test_references(markdown).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 1, 3, 4]);
    let dangling = dangling_references(markdown, &sources);
    let expected =
        ["line 3: there is no test `mount::nothing_is_lost`", "line 4: there is no test `mount::only_in_a_comment`"];
    assert_eq!(dangling, expected);
}

#[test]
fn planted_promises_without_a_test_are_found() {
    let markdown = "Text.\n- Kept\n  (`core::a`).\n- Bare,\n  in two lines.\n\n- Kept (`mount::b`).\n- `code` alone\n\
                    ## Not promised, or not tested yet\n- Nothing\n";
    let expected = ["line 4: a promise without a test", "line 8: a promise without a test"];
    assert_eq!(promises_without_a_test(markdown), expected);
}

#[test]
fn planted_tests_without_a_promise_are_found() {
    let sources = [
        Source::new(
            "tests/core.rs",
            "#[test]\nfn named() {}\n#[test]\n#[cfg(unix)]\nfn forgotten() {}\nfn helper() {}\n",
        ),
        Source::new("tests/eviction_later.rs", "#[test] fn forgotten_too() {}\n"),
        Source::new("tests/mount.rs", "on_a_mount! { listed, twice, }\nfn listed() {}\n// #[test] fn comment() {}\n"),
        Source::new("tests/mount/data.rs", "rig::in_both_io_modes![missed,];\n"),
        Source::new(
            "tests/mount/rig.rs",
            "macro_rules! on_a_mount { ($($n:ident,)*) => { $( #[test] fn $n() {} )* } }\n\
                                           macro_rules! in_both_io_modes { () => { on_a_mount!(@mode $name) } }\n",
        ),
        Source::new("tests/cli.rs", "#[test]\nfn of_another_suite() {}\n"),
        Source::new("src/a.rs", "#[test]\nfn of_no_suite() {}\n"),
    ];
    let markdown =
        "(`core::named`, `mount::listed`, `mount::twice`)\n(`mount::twice`, `core::helper`, `core::listed`)\n";
    let expected = [
        "no promise names `core::forgotten`",
        "no promise names `eviction_later::forgotten_too`",
        "no promise names `mount::missed`",
        "`mount::twice` is named 2 times",
    ];
    assert_eq!(tests_without_a_promise(markdown, &sources), expected);
    let dangling = ["line 2: there is no test `core::helper`", "line 2: there is no test `core::listed`"];
    assert_eq!(dangling_references(markdown, &sources), dangling);
}

#[test]
fn strings_characters_and_comments_are_not_code() {
    let cases = [
        (r#"a "b \" c" d"#, "a d"),
        (r##"a r#"b " c"# d"##, "a d"),
        (r##"a br#"b"# cr"x" b"y" d"##, "a b d"),
        ("a // b \" c\nd", "a d"),
        ("a /* b /* c */ \" */ d", "a d"),
        (r"a '\'' b '{' c '\u{7b}' d 'ü' e '€' f '𝄞' g", "a b c d e f g"),
        ("fn a<'b>(c: &'b str) { 'd: loop {} }", "fn a<'b>(c: &'b str) { 'd: loop {} }"),
        ("r#type for", "r#type for"),
        ("a \"unterminated", "a"),
        ("a /* unterminated", "a"),
    ];
    for (text, expected) in cases {
        let code = source::code_only(text);
        assert_eq!(code.len(), text.len(), "{text}");
        assert_eq!(code.lines().count(), text.lines().count(), "{text}");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{text}");
    }
}

#[test]
fn functions_are_counted_from_fn_to_the_closing_brace() {
    let code = "trait T {\n    fn declared(a: [u8; 4]);\n}\npub fn one() {}\ntype F = fn(u8) -> u8;\n\
                const fn array(a: [u8; 4])\n-> u8 {\n    let s = \"}\";\n    fn inner() {\n    }\n}\n\
                macro_rules! m { ($n:ident) => { fn $n() {} } }\n";
    let code = source::code_only(code);
    let counted: Vec<(&str, usize, usize)> =
        functions(&code).iter().map(|function| (function.name, function.line, function.lines)).collect();
    assert_eq!(counted, [("one", 4, 1), ("array", 6, 6), ("inner", 9, 2)]);
}

#[test]
fn a_walk_without_git_sees_the_same_sources() {
    let listed: BTreeSet<String> = repository_files().into_iter().filter(|path| path.starts_with("src/")).collect();
    let walked = walk(&root().join("src")).into_iter().map(|path| format!("src/{path}"));
    let walked: BTreeSet<String> = walked.filter(|path| listed.contains(path)).collect();
    assert_eq!(walked, listed);
}
