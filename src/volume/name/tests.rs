//! Names, paths and the placement key: every sentence of DESIGN.md section 4 "Key".

use super::*;
use proptest::prelude::*;

fn key(name: &str) -> String {
    let key = PlacementKey::of(name.as_bytes());
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

const SGLANG_TEMP: &str = "h_m_0_1.bin.tmp.4711.140052.0123456789abcdef0123456789abcdef";

/// Each line: names that must reduce to the last word of the line.
fn assert_keys(table: &[(&[&str], &str)]) {
    for (names, expected) in table {
        for name in *names {
            assert_eq!(&key(name), expected, "the key of {name:?}");
        }
    }
}

#[test]
fn a_name_is_checked_once() {
    let longest = [b'x'; 255];
    let too_long = [b'x'; 256];
    assert_eq!(EntryName::new(&longest).map(EntryName::as_bytes), Ok(&longest[..]));
    assert_eq!(EntryName::new(&too_long), Err(NameError::TooLong));
    for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
        assert_eq!(EntryName::new(bad), Err(NameError::Invalid), "{bad:?}");
    }
    for good in [&b"..."[..], b".a", b"a b", b"\xff\xfe", b"a\nb"] {
        assert!(EntryName::new(good).is_ok(), "{good:?}");
    }
}

#[test]
fn a_path_never_leaves_the_disk() {
    for bad in [&b"/"[..], b"/a", b"a/", b"a//b", b"../a", b"a/../b", b"a/.", b"a\0b"] {
        assert_eq!(RelPath::new(bad), Err(NameError::Invalid), "{bad:?}");
    }
    let mut deep = b"a/".to_vec();
    deep.extend_from_slice(&[b'x'; 256]);
    assert_eq!(RelPath::new(&deep), Err(NameError::TooLong));
}

#[test]
fn a_path_knows_its_parts() {
    let path = RelPath::new(b"model/abc/K.data").unwrap();
    assert_eq!(path.depth(), 3);
    assert_eq!(path.file_name(), Some(EntryName(b"K.data")));
    let parent = path.parent().unwrap();
    assert_eq!(parent.as_bytes(), b"model/abc");
    let top = parent.parent().unwrap();
    assert_eq!((top.as_bytes(), top.depth()), (&b"model"[..], 1));
    assert_eq!(top.parent(), Some(RelPath::ROOT));
    assert_eq!(RelPath::ROOT.parent(), None);
    assert_eq!(RelPath::ROOT.file_name(), None);
    assert_eq!(RelPath::ROOT.depth(), 0);
    assert_eq!(RelPath::new(b"").unwrap(), RelPath::ROOT);
}

#[test]
fn only_the_root_of_a_disk_hides_names() {
    assert!(is_hidden(b".kvspan") && is_hidden(b"lost+found"));
    assert!(!is_hidden(b".kvspan2") && !is_hidden(b"K.data"));
    assert!(RelPath::new(b".kvspan/label.json").unwrap().is_hidden());
    assert!(!RelPath::new(b"model/.kvspan").unwrap().is_hidden());
    assert!(!RelPath::ROOT.is_hidden());
}

#[test]
fn one_temp_suffix_is_stripped() {
    assert_keys(&[
        (&["K.data", "K.tmp", "K", "K.part", "K.partial"], "K"),
        (&["K.tmp0", "K.tmp1234567", "K.tmp.x", "K.tmp.a1-_@b", "K.tmp.12"], "K"),
        (&["K.data.tmp", "K.bin.tmp7", "K.pt.tmp.q", "K.kv.part", "K.safetensors.partial"], "K"),
        (&["K.part.tmp7", "K.part.data"], "K.part"),
        (&["K.tmp.tmp.tmp"], "K.tmp"),
        // Not temp suffixes: no dot before them, letters behind them, a dot in them, nothing in them.
        (&["Ktmp"], "Ktmp"),
        (&["K.tmpx"], "K.tmpx"),
        (&["K.tmp1x"], "K.tmp1x"),
        (&["K.tmp.a.b"], "K.tmp.a.b"),
        (&["K.tmp."], "K.tmp."),
        (&["K.parts"], "K.parts"),
        (&["K.TMP"], "K.TMP"),
    ]);
}

#[test]
fn the_longest_temp_suffix_wins() {
    // `.tmp.<anything without a dot>` takes `.tmp.data` as well as `.tmp.tmp`, so that K = `a.tmp`
    // has one owner under both of LMCache's names.
    assert_keys(&[
        (&["a.tmp.tmp", "a.tmp.data", "a.tmp.tmp12", "a.tmp.part", "a.tmp.partial"], "a"),
        (&["a.tmp12.tmp", "a.tmp12.data"], "a.tmp12"),
    ]);
}

#[test]
fn sglang_s_ids_go_with_its_temp_suffix() {
    assert_keys(&[
        (&["h_m_0_1.bin", SGLANG_TEMP], "h_m_0_1"),
        (&["K.tmp.1.2.0123456789abcdef0123456789abcdef"], "K"),
        // Another number of parts, no number, another length, no hex digit.
        (&["K.tmp.1.0123456789abcdef0123456789abcdef"], "K.tmp.1.0123456789abcdef0123456789abcdef"),
        (&["K.tmp.1..0123456789abcdef0123456789abcdef"], "K.tmp.1..0123456789abcdef0123456789abcdef"),
        (&["K.tmp.1.x.0123456789abcdef0123456789abcdef"], "K.tmp.1.x.0123456789abcdef0123456789abcdef"),
        (&["K.tmp.1.2.0123456789abcdef"], "K.tmp.1.2.0123456789abcdef"),
        (&["K.tmp.1.2.0123456789abcdef0123456789abcdeg"], "K.tmp.1.2.0123456789abcdef0123456789abcdeg"),
    ]);
}

#[test]
fn a_writers_number_goes_only_with_a_temp_suffix_and_a_final_extension() {
    assert_keys(&[
        (&["h.bin", "h.bin_1234.tmp", "h.bin_0.tmp", "h.bin_1.part", "h.data_9.tmp.x"], "h"),
        (&["h.pt.bin_77.tmp12"], "h"),
        (&["h.bin_1234"], "h.bin_1234"),
        (&["h.bin_.tmp"], "h.bin_"),
        (&["h.bin_1x.tmp"], "h.bin_1x"),
        (&["h.bin-1.tmp"], "h.bin-1"),
        (&["h.txt_1.tmp"], "h.txt_1"),
        (&["K_123.tmp", "K_123.data", "K_123"], "K_123"),
        (&["h.bin_1_2.tmp"], "h.bin_1_2"),
    ]);
}

#[test]
fn rsync_names_have_the_key_of_their_target() {
    assert_keys(&[
        (&[".K.data.aB3dE9", ".K.abcdef", ".K.123456"], "K"),
        (&[".K.@user.alice.data.ZZZZZZ"], "K.@user.alice"),
        (&[".h.bin_1234.tmp.aaaaaa"], "h"),
        (&[".K.tmp.aB3dE9"], "K"),
        (&[".K.data.aB3dE"], ".K.data.aB3dE"),
        (&[".K.data.aB3dE-"], ".K.data.aB3dE-"),
        (&["K.data.aB3dE9"], "K.data.aB3dE9"),
        (&["..aB3dE9"], "..aB3dE9"),
        (&[".aB3dE9"], ".aB3dE9"),
    ]);
}

#[test]
fn final_extensions_go_repeatedly_and_no_other_does() {
    assert_keys(&[
        (&["a.data", "a.bin", "a.pt", "a.kv", "a.safetensors", "a.bin.data", "a.kv.kv.kv"], "a"),
        (&["a.txt.data"], "a.txt"),
        (&["a.data.txt"], "a.data.txt"),
        (&["a.json"], "a.json"),
        (&["adata"], "adata"),
        (&["a.DATA"], "a.DATA"),
        (&["m@0x0@0@ff@user.alice.data", "m@0x0@0@ff@user.alice.tmp"], "m@0x0@0@ff@user.alice"),
        (&["Llama-3.1-8B@0x0@0@ff.data", "Llama-3.1-8B@0x0@0@ff.tmp"], "Llama-3.1-8B@0x0@0@ff"),
    ]);
}

#[test]
fn if_nothing_is_left_the_whole_name_is_the_key() {
    for name in [".data", ".tmp", ".bin.data", ".tmp.data", ".part", ".bin_12.tmp", ".tmp12", "..data.aB3dE9", "x"] {
        assert_eq!(key(name), name);
    }
    assert_eq!(key(""), "");
}

#[test]
fn the_list_of_final_extensions_can_be_extended() {
    let with = |name: &'static str, extra: &[&str]| PlacementKey::of_with(name.as_bytes(), extra);
    assert_eq!(with("a.npy", &[".npy"]).as_bytes(), b"a");
    assert_eq!(with("a.npy", &["npy"]).as_bytes(), b"a");
    assert_eq!(with("a.npy.data", &["npy"]).as_bytes(), b"a");
    assert_eq!(with("a.npy_12.tmp", &[".zst", ".npy"]).as_bytes(), b"a");
    assert_eq!(with("a.npy", &["", "."]).as_bytes(), b"a.npy");
    assert_eq!(with("a.", &["", "."]).as_bytes(), b"a.");
}

#[test]
fn temp_names_are_told_from_final_ones() {
    for name in ["K.tmp", "K.tmp1", "K.tmp.x", "K.part", "K.partial", "h.bin_1.tmp", ".K.data.aB3dE9", SGLANG_TEMP] {
        assert!(is_temp_name(name.as_bytes()), "{name}");
    }
    for name in ["K.data", "h.bin", "h.bin_1", "K_1", "K.tmpx", ".tmp", ".partial", ".tmp1", "..aB3dE9", ""] {
        assert!(!is_temp_name(name.as_bytes()), "{name}");
    }
}

#[test]
fn messages_name_the_thing() {
    assert!(NameError::TooLong.to_string().contains("255"));
    assert_eq!(format!("{:?}", EntryName(b"a\xff")), r#"EntryName("a\xff")"#);
    assert_eq!(EntryName(b"a").to_string(), "a");
    assert_eq!(RelPath::new(b"a/b").unwrap().to_string(), "a/b");
}

/// LMCache-style keys: dots in the model, salts with dots and numbers. None ends in what would make
/// it a temp name of its own.
fn engine_key() -> impl Strategy<Value = String> {
    let salt = prop_oneof![Just(String::new()), "@[a-z]{1,8}(\\.[a-z]{1,8}){0,2}(_[0-9]{1,4})?"];
    ("[A-Za-z0-9]{1,12}(-SEP-[A-Za-z0-9.-]{1,20})?", "[0-9a-f]{64}", salt)
        .prop_map(|(model, hash, salt)| format!("{model}@0x0@0@{hash}{salt}"))
        .prop_filter("a key that is a temp name", |key| !is_temp_name(key.as_bytes()))
        .prop_filter("a key that ends as llm-d's temp names do, `.kv_0`", |key| {
            let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
            stem == key || !stem.strip_suffix('_').is_some_and(|stem| FINAL.iter().any(|end| stem.ends_with(end)))
        })
}

const FINAL: [&str; 5] = [".data", ".bin", ".pt", ".kv", ".safetensors"];

fn final_extension() -> impl Strategy<Value = &'static str> {
    prop::sample::select(FINAL.to_vec())
}

proptest! {
    #[test]
    fn every_temp_form_has_the_key_of_its_final_form(
        engine in engine_key(),
        extension in final_extension(),
        number in 0u64..,
        random in "[A-Za-z0-9]{6}",
        ids in "[0-9]{1,7}\\.[0-9]{1,20}\\.[0-9a-f]{32}",
        word in "[A-Za-z0-9_@-]{1,12}",
    ) {
        let published = format!("{engine}{extension}");
        let forms = [
            engine.clone(),
            format!("{engine}.tmp"),
            format!("{engine}.tmp{number}"),
            format!("{engine}.tmp.{word}"),
            format!("{engine}.part"),
            format!("{published}.tmp"),
            format!("{published}.tmp{number}"),
            format!("{published}.tmp.{word}"),
            format!("{published}.tmp.{ids}"),
            format!("{published}.partial"),
            format!("{published}_{number}.tmp"),
            format!(".{published}.{random}"),
            format!(".{engine}.tmp.{random}"),
        ];
        for form in &forms {
            prop_assert_eq!(key(form), key(&published), "{}", form);
        }
        for form in forms.iter().skip(1) {
            prop_assert!(is_temp_name(form.as_bytes()), "{}", form);
        }
        prop_assert!(!is_temp_name(published.as_bytes()));
    }

    #[test]
    fn lmcache_names_of_any_key_share_one_owner(engine in "[a-z@._0-9-]{1,60}") {
        // Also keys that end in `.tmp`, `.tmp12` or `.part` themselves.
        for ending in ["", ".tmp", ".tmp12", ".part", ".bin", "_12"] {
            let engine = format!("k{engine}{ending}");
            prop_assert_eq!(key(&format!("{engine}.tmp")), key(&format!("{engine}.data")));
        }
    }

    #[test]
    fn any_bytes_have_a_key_that_is_part_of_them(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let key = PlacementKey::of(&bytes).as_bytes();
        prop_assert_eq!(key.is_empty(), bytes.is_empty());
        prop_assert!(bytes.windows(key.len().max(1)).any(|part| part == key) || bytes.is_empty());
        let _ = is_temp_name(&bytes);
    }

    #[test]
    fn a_joined_path_comes_apart_again(names in prop::collection::vec("[a-z.]{3,9}x", 1..5)) {
        let mut path = RelPath::ROOT;
        for name in &names {
            path = path.join(EntryName::new(name.as_bytes()).unwrap());
        }
        let joined = names.join("/");
        prop_assert_eq!(path.as_bytes(), joined.as_bytes());
        prop_assert_eq!(path.depth(), names.len());
        let again = RelPath::new(path.as_bytes()).unwrap();
        let parent = again.parent().unwrap();
        prop_assert_eq!(parent.join(again.file_name().unwrap()), again);
    }
}
