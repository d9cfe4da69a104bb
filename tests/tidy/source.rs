//! Rust source as the house rules see it: strings, characters and comments blanked out, line by line
//! where it was. Not a parser; enough to count braces and to find words that are code.

use std::ops::Range;

/// One source file.
pub struct Source {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// `text` with every string, character and comment replaced by blanks; same length, same lines.
    pub code: String,
}

/// A function with a body.
pub struct Function<'a> {
    pub name: &'a str,
    /// Line of `fn`, counted from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace, both counted.
    pub lines: usize,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: code_only(text) }
    }

    /// A finding at `offset` of this file.
    pub fn finding(&self, offset: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line_of(&self.text, offset))
    }

    /// Whether the whole file is test code.
    pub fn is_test_file(&self) -> bool {
        self.path.starts_with("tests/") || self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// `code` without `#[cfg(test)] mod ...`: blanks in its place. All blank in a test file.
    pub fn shipped_code(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        if self.is_test_file() {
            blank(&mut code);
        }
        for span in test_modules(&self.code) {
            blank(&mut code[span]);
        }
        String::from_utf8_lossy(&code).into_owned()
    }

    /// Number of lines without those of `#[cfg(test)] mod ...`.
    pub fn shipped_lines(&self) -> usize {
        if self.is_test_file() {
            return 0;
        }
        let of_tests = test_modules(&self.code).into_iter().map(|span| self.code[span].lines().count());
        self.text.lines().count().saturating_sub(of_tests.sum())
    }
}

/// Line of `offset`, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// `text` with every string, character and comment replaced by blanks.
pub fn code_only(text: &str) -> String {
    let mut code = text.as_bytes().to_vec();
    let mut at = 0;
    while at < text.len() {
        match end_of_blank(text.as_bytes(), at) {
            Some(end) => {
                let end = end.min(text.len());
                blank(&mut code[at..end]);
                at = end;
            }
            None => at += 1,
        }
    }
    String::from_utf8(code).expect("only whole strings and comments are blanked")
}

/// Where the string, character or comment that begins at `at` ends; none if none begins there.
fn end_of_blank(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at..];
    let after_word = at > 0 && is_word(text[at - 1]);
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(at + length_of_block_comment(rest)),
        [b'"', ..] => Some(at + length_of_quoted(rest, b'"')),
        [b'r', ..] if !after_word => length_of_raw_string(&rest[1..]).map(|length| at + 1 + length),
        [b'b' | b'c', b'r', ..] if !after_word => length_of_raw_string(&rest[2..]).map(|length| at + 2 + length),
        [b'\'', b'\\', ..] => Some(at + length_of_quoted(rest, b'\'')),
        // A lifetime or a label has no second quote right behind its first character.
        [b'\'', first, ..] => {
            // Bytes of that character in UTF-8.
            let width = [0x80, 0xe0, 0xf0].iter().filter(|lead| first >= lead).count() + 1;
            (rest.get(1 + width) == Some(&b'\'')).then_some(at + width + 2)
        }
        _ => None,
    }
}

fn length_of_quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != quote {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of `#..."..."#...` behind its `r`; none if this is no raw string.
fn length_of_raw_string(text: &[u8]) -> Option<usize> {
    let hashes = text.iter().take_while(|byte| **byte == b'#').count();
    if text.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let inside = &text[hashes + 1..];
    let length = inside.windows(end.len()).position(|window| window == end).unwrap_or(inside.len());
    Some(hashes + 1 + length + end.len())
}

fn length_of_block_comment(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The words of `code` with their places.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = code.as_bytes();
        at += bytes[at..].iter().position(|byte| is_word(*byte))?;
        let start = at;
        at += bytes[at..].iter().position(|byte| !is_word(*byte)).unwrap_or(bytes.len() - at);
        Some((start, &code[start..at]))
    })
}

/// Places of `word` in `code` as a word of its own.
pub fn places_of(code: &str, word: &str) -> Vec<usize> {
    words(code).filter(|(_, found)| *found == word).map(|(at, _)| at).collect()
}

/// What follows the word or sign that ends at `at`, without the blanks between.
fn behind(code: &str, at: usize) -> &str {
    code[at..].trim_start()
}

/// Places of `name!(...)`.
pub fn macro_calls(code: &str, name: &str) -> Vec<usize> {
    let called = |at: &usize| {
        let rest = behind(code, at + name.len());
        rest.starts_with('!') && !rest.starts_with("!=")
    };
    places_of(code, name).into_iter().filter(called).collect()
}

/// Attributes, `#[...]` and `#![...]`, as the place of the `#` and the text between the brackets.
pub fn attributes(code: &str) -> Vec<(usize, &str)> {
    let attribute = |(at, _)| {
        let rest = behind(code, at + 1);
        let rest = rest.strip_prefix('!').map_or(rest, str::trim_start);
        let start = code.len() - rest.len();
        let end = start + length_of_block(rest, b'[', b']')?;
        Some((at, &code[start + 1..end - 1]))
    };
    code.match_indices('#').filter_map(attribute).collect()
}

/// Length of the block that begins with `open` at the start of `code`, its `close` included.
fn length_of_block(code: &str, open: u8, close: u8) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate() {
        if byte == open {
            depth += 1;
        } else if byte == close {
            depth = depth.checked_sub(1)?;
        }
        if depth == 0 {
            return (at > 0).then_some(at + 1);
        }
    }
    None
}

/// The functions of `code` that have a body.
pub fn functions(code: &str) -> Vec<Function<'_>> {
    let function = |at: usize| {
        let rest = behind(code, at + 2);
        // Without a name it is a function pointer's type.
        let (0, name) = words(rest).next()? else { return None };
        let name_at = code.len() - rest.len();
        let body = name_at + start_of_body(rest)?;
        let end = body + length_of_block(&code[body..], b'{', b'}')?;
        let line = line_of(code, at);
        Some(Function { name, line, lines: line_of(code, end) - line + 1 })
    };
    places_of(code, "fn").into_iter().filter_map(function).collect()
}

/// The names of `code`'s tests: functions marked `#[test]`, and what is listed in a call of one of `macros`, which make
/// such functions of names.
pub fn tests<'a>(code: &'a str, macros: &[&str]) -> Vec<&'a str> {
    let marked = attributes(code).into_iter().filter(|(_, text)| text.trim() == "test");
    let mut names: Vec<&str> = marked.filter_map(|(at, _)| name_of_function(behind(code, at + 1))).collect();
    for called in macros.iter().flat_map(|name| macro_calls(code, name).into_iter().map(|at| at + name.len())) {
        let Some(list) = behind(code, called).strip_prefix('!').map(str::trim_start).and_then(block) else { continue };
        // A macro that passes its own arguments on names nothing.
        if !list.contains('$') {
            names.extend(words(list).map(|(_, word)| word));
        }
    }
    names
}

/// The name of the function behind the rest of an attribute and the attributes that follow it.
fn name_of_function(mut code: &str) -> Option<&str> {
    loop {
        code = code[block(code)?.len()..].trim_start();
        match code.strip_prefix('#') {
            Some(rest) => code = rest.trim_start(),
            None => break,
        }
    }
    let rest = behind(code.strip_prefix("fn")?, 0);
    words(rest).next().filter(|(at, _)| *at == 0).map(|(_, name)| name)
}

/// The block in brackets of any kind that `code` begins with.
fn block(code: &str) -> Option<&str> {
    let pairs = [(b'{', b'}'), (b'[', b']'), (b'(', b')')];
    let (open, close) = pairs.into_iter().find(|(open, _)| code.as_bytes().first() == Some(open))?;
    Some(&code[..length_of_block(code, open, close)?])
}

/// Where the `{` of a function's body is, seen from its name; none if it ends in `;`.
fn start_of_body(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(at),
            b';' | b'}' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where `#[cfg(test)] mod name { ... }` and `#[cfg(test)] mod name;` are.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let module = |(at, attribute): (usize, &str)| {
        let joined: String = attribute.split_whitespace().collect();
        let rest = behind(code, at + code[at..].find(']')? + 1);
        let is_module = words(rest).next() == Some((0, "mod"));
        if joined != "cfg(test)" || !is_module {
            return None;
        }
        let start = code.len() - rest.len();
        let end = start + rest.find(['{', ';'])?;
        let length = length_of_block(&code[end..], b'{', b'}').filter(|_| code[end..].starts_with('{'));
        Some(at..end + length.unwrap_or(1))
    };
    attributes(code).into_iter().filter_map(module).collect()
}

/// Places where `code` reaches `root::child`, also as `root::{.., child, ..}`.
pub fn reaches(code: &str, root: &str, child: &str) -> Vec<usize> {
    let reached = |at: &usize| heads_behind(code, at + root.len()).contains(&child);
    places_of(code, root).into_iter().filter(reached).collect()
}

/// The same where `root` is as many `super::` as lead from a module `depth` below the crate to it.
pub fn reaches_up(code: &str, depth: usize, child: &str) -> Vec<usize> {
    let reached = |start: &usize| {
        let mut end = start + "super".len();
        let mut steps = 1;
        while heads_behind(code, end) == ["super"] {
            end += code[end..].find("super").unwrap_or(0) + "super".len();
            steps += 1;
        }
        steps >= depth && heads_behind(code, end).contains(&child)
    };
    places_of(code, "super").into_iter().filter(reached).collect()
}

/// The first words of all that follows `::` at `at`: one, or those of a `{..}` group.
fn heads_behind(code: &str, at: usize) -> Vec<&str> {
    let Some(rest) = behind(code, at).strip_prefix("::").map(str::trim_start) else { return Vec::new() };
    if !rest.starts_with('{') {
        return words(rest).next().filter(|(at, _)| *at == 0).map(|(_, word)| word).into_iter().collect();
    }
    let end = length_of_block(rest, b'{', b'}').unwrap_or(rest.len());
    let mut depth = 0usize;
    let items = rest[..end].split(|sign| {
        match sign {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 1 && matches!(sign, '{' | ',')
    });
    items.filter_map(|item| words(item).next()).map(|(_, word)| word).collect()
}
