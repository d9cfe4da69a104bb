//! Placement is a part of the format: golden vectors, then what changes of the disk set move.

use super::*;
use proptest::prelude::*;

const MOVED: &str = "placement changed: every existing cache would look for its files on other disks. \
    This is a change of the on-disk format; put the old result back";

/// The disks of the golden vectors.
const DISKS: [&str; 4] = [
    "3f1c9f8e-5a0d-4a43-9a55-0d2a6c1be001",
    "b27f4a10-93c6-4f0e-8f7e-6f1d7c52a9d4",
    "00000000-0000-4000-8000-000000000001",
    "e9d8c7b6-a594-4372-a1b0-ffeeddccbbaa",
];

const SEEDS: [u64; 4] = [0x6cf4_e3d0_a36e_8500, 0xb2b9_1e80_2b61_37e2, 0x20f2_b792_5b72_2ee4, 0xbf79_10d6_9d2a_b716];

const WEIGHTS: [f64; 4] = [1.0, 2.0, 4.0, 0.5];

/// One name and all that placement makes of it. The values come from an independent implementation
/// (Python: `re`, `blake3`, `decimal`), not from this code.
struct Golden {
    name: &'static str,
    key: &'static str,
    h: u64,
    u: [u64; 4],
    rank: [u8; 4],
    weighted_rank: [u8; 4],
    scores: [f64; 4],
}

#[rustfmt::skip]
const GOLDEN: &[Golden] = &[
    Golden {
        name: "meta-llama-SEP-Llama-3.1-8B-Instruct@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.data",
        key: "meta-llama-SEP-Llama-3.1-8B-Instruct@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        h: 0xc6c1075bc00dd799,
        u: [0xa27beed65e7c1ba6, 0x2e3dd258090a037f, 0x4f0583dfa12cea16, 0xd193b4c4aa7a003f],
        rank: [3, 0, 2, 1],
        weighted_rank: [2, 3, 0, 1],
        scores: [2.199749518040044, 1.1687021704464935, 3.402932007508386, 2.4989212111615413],
    },
    Golden {
        name: "meta-llama-SEP-Llama-3.1-8B-Instruct@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.tmp",
        key: "meta-llama-SEP-Llama-3.1-8B-Instruct@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        h: 0xc6c1075bc00dd799,
        u: [0xa27beed65e7c1ba6, 0x2e3dd258090a037f, 0x4f0583dfa12cea16, 0xd193b4c4aa7a003f],
        rank: [3, 0, 2, 1],
        weighted_rank: [2, 3, 0, 1],
        scores: [2.199749518040044, 1.1687021704464935, 3.402932007508386, 2.4989212111615413],
    },
    Golden {
        name: "Qwen-SEP-Qwen2.5-0.5B@0x3@ff@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.alice.data",
        key: "Qwen-SEP-Qwen2.5-0.5B@0x3@ff@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.alice",
        h: 0x80b1483f9930eadf,
        u: [0xbad94d483ba7619e, 0x1cc47bb6cbdaa3ce, 0xea779cc68a6f863a, 0xbcdb440567e51d02],
        rank: [2, 3, 0, 1],
        weighted_rank: [2, 0, 3, 1],
        scores: [3.1758380116543448, 0.9149420783113146, 45.52615338775933, 1.6437098384356894],
    },
    Golden {
        name: "Qwen-SEP-Qwen2.5-0.5B@0x3@ff@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.alice.tmp",
        key: "Qwen-SEP-Qwen2.5-0.5B@0x3@ff@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.alice",
        h: 0x80b1483f9930eadf,
        u: [0xbad94d483ba7619e, 0x1cc47bb6cbdaa3ce, 0xea779cc68a6f863a, 0xbcdb440567e51d02],
        rank: [2, 3, 0, 1],
        weighted_rank: [2, 0, 3, 1],
        scores: [3.1758380116543448, 0.9149420783113146, 45.52615338775933, 1.6437098384356894],
    },
    Golden {
        name: ".Qwen-SEP-Qwen2.5-0.5B@0x3@ff@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.alice.data.aB3dE9",
        key: "Qwen-SEP-Qwen2.5-0.5B@0x3@ff@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.alice",
        h: 0x80b1483f9930eadf,
        u: [0xbad94d483ba7619e, 0x1cc47bb6cbdaa3ce, 0xea779cc68a6f863a, 0xbcdb440567e51d02],
        rank: [2, 3, 0, 1],
        weighted_rank: [2, 0, 3, 1],
        scores: [3.1758380116543448, 0.9149420783113146, 45.52615338775933, 1.6437098384356894],
    },
    Golden {
        name: "model@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef@tenant_123.data",
        key: "model@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef@tenant_123",
        h: 0xdc900913f56d2f63,
        u: [0x4fc8dc211f1afd28, 0x3c4380f7b082c011, 0xe85686891f73e64c, 0x87375388600c6605],
        rank: [2, 3, 0, 1],
        weighted_rank: [2, 1, 0, 3],
        scores: [0.8577456100876147, 1.3826977313373867, 41.24379828357314, 0.7833269554974491],
    },
    Golden {
        name: "model@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef@tenant_123.tmp",
        key: "model@0x0@0@0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef@tenant_123",
        h: 0xdc900913f56d2f63,
        u: [0x4fc8dc211f1afd28, 0x3c4380f7b082c011, 0xe85686891f73e64c, 0x87375388600c6605],
        rank: [2, 3, 0, 1],
        weighted_rank: [2, 1, 0, 3],
        scores: [0.8577456100876147, 1.3826977313373867, 41.24379828357314, 0.7833269554974491],
    },
    Golden {
        name: "model@0x0@0@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.tmp.data",
        key: "model@0x0@0@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user",
        h: 0x7525e8514a0a91d2,
        u: [0x2a0a0474ddd603c1, 0x65184522d75befef, 0xce01c85004a850a1, 0x80e9945a4c2866da],
        rank: [2, 3, 1, 0],
        weighted_rank: [2, 1, 3, 0],
        scores: [0.5535331357253012, 2.15257747885364, 18.41048677327074, 0.728816030004579],
    },
    Golden {
        name: "model@0x0@0@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user.tmp.tmp",
        key: "model@0x0@0@9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08@user",
        h: 0x7525e8514a0a91d2,
        u: [0x2a0a0474ddd603c1, 0x65184522d75befef, 0xce01c85004a850a1, 0x80e9945a4c2866da],
        rank: [2, 3, 1, 0],
        weighted_rank: [2, 1, 3, 0],
        scores: [0.5535331357253012, 2.15257747885364, 18.41048677327074, 0.728816030004579],
    },
    Golden {
        name: "5d41402abc4b2a76b9719d911017c592.bin",
        key: "5d41402abc4b2a76b9719d911017c592",
        h: 0x25a792c2d01b1618,
        u: [0xfa1659a0a0c1881b, 0x411974e6d6588713, 0x2c86ad80c6eb96a9, 0x4c94f74df17a062a],
        rank: [0, 3, 1, 2],
        weighted_rank: [0, 2, 1, 3],
        scores: [42.79472280157214, 1.4606413781154743, 2.2868874609730043, 0.4143131240917918],
    },
    Golden {
        name: "5d41402abc4b2a76b9719d911017c592.bin_1234.tmp",
        key: "5d41402abc4b2a76b9719d911017c592",
        h: 0x25a792c2d01b1618,
        u: [0xfa1659a0a0c1881b, 0x411974e6d6588713, 0x2c86ad80c6eb96a9, 0x4c94f74df17a062a],
        rank: [0, 3, 1, 2],
        weighted_rank: [0, 2, 1, 3],
        scores: [42.79472280157214, 1.4606413781154743, 2.2868874609730043, 0.4143131240917918],
    },
    Golden {
        name: "5d41402abc4b2a76b9719d911017c592_1234.tmp",
        key: "5d41402abc4b2a76b9719d911017c592_1234",
        h: 0x4654e0bfea9c1921,
        u: [0x2087ef661498f389, 0xa98c502f920569e8, 0xdedbacac6acc5d83, 0xae65abd1082cc9ac],
        rank: [2, 3, 1, 0],
        weighted_rank: [2, 1, 3, 0],
        scores: [0.4847347183707822, 4.8538883649947655, 28.851248057510553, 1.3026184316984493],
    },
    Golden {
        name: "5d41402abc4b2a76b9719d911017c592.bin_1234",
        key: "5d41402abc4b2a76b9719d911017c592.bin_1234",
        h: 0x7ad4dd2bf69b4429,
        u: [0xc23492fb988d6cbd, 0x44b431af500bb62f, 0xb416a35f97ff4ba8, 0x68d1a43cb74af5d1],
        rank: [0, 2, 3, 1],
        weighted_rank: [2, 0, 1, 3],
        scores: [3.6197621103552056, 1.5204827378746935, 11.372377769709175, 0.5599460126681935],
    },
    Golden {
        name: "key_model_7.bin",
        key: "key_model_7",
        h: 0x8e20e82d78992636,
        u: [0xb0b2764b25f6bba9, 0x749063f2f671ea64, 0xb2315006ef534a10, 0x232ddaf35d651ced],
        rank: [2, 0, 1, 3],
        weighted_rank: [2, 0, 1, 3],
        scores: [2.697305335279962, 2.542146401715359, 11.040199203158133, 0.25192411350050753],
    },
    Golden {
        name: "key_model_7.bin.tmp.Xy-9",
        key: "key_model_7",
        h: 0x8e20e82d78992636,
        u: [0xb0b2764b25f6bba9, 0x749063f2f671ea64, 0xb2315006ef534a10, 0x232ddaf35d651ced],
        rank: [2, 0, 1, 3],
        weighted_rank: [2, 0, 1, 3],
        scores: [2.697305335279962, 2.542146401715359, 11.040199203158133, 0.25192411350050753],
    },
    Golden {
        name: "weights.v1.safetensors.part",
        key: "weights.v1",
        h: 0x48d8878522278a7b,
        u: [0xfa11f64f68ba36bf, 0xf0b3aa0f4784fe69, 0xdec105ed22bb9bab, 0xc2de31771e62ba83],
        rank: [0, 1, 2, 3],
        weighted_rank: [0, 1, 2, 3],
        scores: [42.66956607887837, 32.45775046002783, 28.754339887493963, 1.832472878308207],
    },
    Golden {
        name: "weights.v1.pt.kv.data.partial",
        key: "weights.v1",
        h: 0x48d8878522278a7b,
        u: [0xfa11f64f68ba36bf, 0xf0b3aa0f4784fe69, 0xdec105ed22bb9bab, 0xc2de31771e62ba83],
        rank: [0, 1, 2, 3],
        weighted_rank: [0, 1, 2, 3],
        scores: [42.66956607887837, 32.45775046002783, 28.754339887493963, 1.832472878308207],
    },
    Golden {
        name: "layer.0.kv.tmp77",
        key: "layer.0",
        h: 0xb69e9cb6ea2ea399,
        u: [0xcf17e264394eedee, 0x7b5663c36e4a0c87, 0xbe1926af88053402, 0x4972872fcf7f880b],
        rank: [0, 2, 1, 3],
        weighted_rank: [2, 0, 1, 3],
        scores: [4.716802321544908, 2.7387758204377763, 13.439215587620145, 0.40044584769356817],
    },
    Golden {
        name: "notes.txt",
        key: "notes.txt",
        h: 0x35e6698d19c159a8,
        u: [0xbf6cb138f24948d1, 0x0112180fd0b3df0e, 0x61696c6f0599d488, 0xa7a731f39ab6c56b],
        rank: [0, 3, 2, 1],
        weighted_rank: [2, 0, 3, 1],
        scores: [3.4401670829917914, 0.3651711576037645, 4.139801167255998, 1.1812499384354969],
    },
    Golden {
        name: ".data",
        key: ".data",
        h: 0x6e2d0a9a2ee28f62,
        u: [0x61e1184508d46016, 0x0d05c463a38dc437, 0x988ab467ef482932, 0x5d478fa441e17694],
        rank: [2, 0, 3, 1],
        weighted_rank: [2, 0, 1, 3],
        scores: [1.040103697571556, 0.6714796829565116, 7.72590516553988, 0.4952570711051917],
    },
    Golden {
        name: ".tmp",
        key: ".tmp",
        h: 0x578f1da282de6a6d,
        u: [0x748db7465c976bca, 0x74ce5ff2970881c2, 0x92357a3d0c9ca468, 0x74afa9599fcfb29e],
        rank: [2, 1, 3, 0],
        weighted_rank: [2, 1, 0, 3],
        scores: [1.270928406838614, 2.548869123155872, 7.141058517967249, 0.6363838295298972],
    },
];

fn golden_disks(weights: [f64; 4]) -> Placement {
    let uuids = DISKS.map(|text| Uuid::parse_str(text).unwrap());
    let disks: Vec<(Uuid, f64)> = uuids.into_iter().zip(weights).collect();
    Placement::new(&disks).unwrap()
}

fn numbers(rank: &Rank) -> Vec<u8> {
    rank.iter().map(|disk| disk.0).collect()
}

#[test]
fn golden_vectors_of_equal_disks() {
    let placement = golden_disks([1.0; 4]);
    let seeds: Vec<u64> = placement.disks.iter().map(|disk| disk.seed).collect();
    assert_eq!(seeds, SEEDS, "{MOVED}");
    for golden in GOLDEN {
        let key = PlacementKey::of(golden.name.as_bytes());
        assert_eq!(key.as_bytes(), golden.key.as_bytes(), "{}: {MOVED}", golden.name);
        assert_eq!(leading_u64(key.as_bytes()), golden.h, "{}: {MOVED}", golden.name);
        let u: Vec<u64> = placement.draws(&key).map(|draw| draw.u).collect();
        assert_eq!(u, golden.u, "{}: {MOVED}", golden.name);
        let owner = placement.owner(&key).unwrap();
        assert_eq!(owner.0, golden.rank[0], "owner of {}: {MOVED}", golden.name);
        assert_eq!(numbers(&placement.rank(&key)), golden.rank, "{}: {MOVED}", golden.name);
    }
}

#[test]
fn golden_vectors_of_weighted_disks() {
    let placement = golden_disks(WEIGHTS);
    for golden in GOLDEN {
        let key = PlacementKey::of(golden.name.as_bytes());
        for (draw, expected) in placement.draws(&key).zip(golden.scores) {
            let error = (draw.score - expected).abs() / expected;
            assert!(error < 4.5e-16, "{}: {} for {expected}: {MOVED}", golden.name, draw.score);
        }
        let rank = placement.rank(&key);
        assert_eq!(numbers(&rank), golden.weighted_rank, "{}: {MOVED}", golden.name);
        assert_eq!(placement.owner(&key), rank.first().copied(), "{}: {MOVED}", golden.name);
    }
}

#[test]
fn the_last_bit_of_every_score_is_part_of_the_format() {
    // The independent scores are rounded correctly, `libm`'s may be off by the last bit; a version
    // of it that rounds otherwise can change an owner.
    let placement = golden_disks(WEIGHTS);
    let mut digest = 0;
    for golden in GOLDEN {
        for draw in placement.draws(&PlacementKey::of(golden.name.as_bytes())) {
            digest = mix64(digest ^ draw.score.to_bits());
        }
    }
    assert_eq!(digest, 8_349_082_451_607_289_475, "{MOVED}");
}

#[test]
fn mix64_is_splitmix64() {
    // The first outputs of the reference `splitmix64.c` from the states 0 and 1234567.
    let outputs = |mut state: u64| {
        [(); 3].map(|()| {
            let output = mix64(state);
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            output
        })
    };
    let from_0 = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
    assert_eq!(outputs(0), from_0, "{MOVED}");
    let from_1234567: [u64; 3] = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    assert_eq!(outputs(1_234_567), from_1234567, "{MOVED}");
}

#[test]
fn the_weighted_score_is_finite_at_both_ends() {
    // ln(2^-53) = -53 ln 2; ln(1 - 2^-53) = -2^-53 but for the rounding of the result.
    let lowest = weighted_score(0, 1.0);
    assert!((lowest - 1.0 / (53.0 * std::f64::consts::LN_2)).abs() < 1e-15, "{lowest}");
    let highest = weighted_score(u64::MAX, 1.0);
    assert!((highest / (1u64 << 53) as f64 - 1.0).abs() < 1e-15, "{highest}");
}

#[test]
fn ties_go_by_u_and_then_to_the_higher_uuid() {
    let draw = |uuid: u128, u: u64, score: f64| Draw { number: DiskNo(0), uuid: Uuid::from_u128(uuid), u, score };
    let ascending = [draw(9, 9, 1.0), draw(9, 1, 2.0), draw(1, 2, 2.0), draw(2, 2, 2.0), draw(1, 3, 2.0)];
    for pair in ascending.windows(2) {
        assert_eq!(pair[0].compare(&pair[1]), Ordering::Less, "{pair:?}");
    }
}

#[test]
fn disk_lists_that_cannot_be_placed_on_are_refused() {
    let id = Uuid::from_u128;
    assert_eq!(Placement::new(&[(id(1), 1.0), (id(1), 1.0)]).err(), Some(PlacementError::DuplicateDisk(id(1))));
    for weight in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let refused = Placement::new(&[(id(1), weight)]).err();
        assert!(matches!(refused, Some(PlacementError::BadWeight(..))), "{weight}");
    }
    let many: Vec<(Uuid, f64)> = (0..65).map(|n| (id(n), 1.0)).collect();
    assert_eq!(Placement::new(&many).err(), Some(PlacementError::TooManyDisks(65)));
    let most = Placement::new(&many[1..]).unwrap();
    assert_eq!(most.rank(&PlacementKey::of(b"K")).len(), MAX_DISKS);
    let none = Placement::new(&[]).unwrap();
    assert_eq!(none.owner(&PlacementKey::of(b"K")), None);
    assert!(none.rank(&PlacementKey::of(b"K")).is_empty());
}

const NAMES: usize = 100_000;

/// A name as LMCache's `fs_native` gives it, its hash from SplitMix64.
fn lmcache_name(number: usize) -> String {
    let word = |part: usize| mix64((number * 4 + part) as u64);
    format!(
        "meta-llama-SEP-Llama-3.1-8B-Instruct@0x0@0@{:016x}{:016x}{:016x}{:016x}.data",
        word(0),
        word(1),
        word(2),
        word(3)
    )
}

/// Disks with fixed random-looking ids: the first `weights.len()` of one endless list.
fn disks_of(weights: &[f64]) -> Vec<(Uuid, f64)> {
    let id = |n: u64| Uuid::from_u64_pair(mix64(n), mix64(!n));
    (0..).map(id).zip(weights.iter().copied()).collect()
}

/// The owner's UUID of each of the names.
fn owners(disks: &[(Uuid, f64)]) -> Vec<Uuid> {
    let placement = Placement::new(disks).unwrap();
    let owner = |number| {
        let name = lmcache_name(number);
        let owner = placement.owner(&PlacementKey::of(name.as_bytes())).unwrap();
        disks[owner.index()].0
    };
    (0..NAMES).map(owner).collect()
}

/// Asserts that every disk has its weight's share of the names within 3 %.
fn assert_shares(disks: &[(Uuid, f64)], owners: &[Uuid]) {
    let total: f64 = disks.iter().map(|disk| disk.1).sum();
    for (uuid, weight) in disks {
        let names = owners.iter().filter(|owner| *owner == uuid).count() as f64;
        let expected = NAMES as f64 * weight / total;
        let off = (names - expected).abs() / expected;
        assert!(off <= 0.03, "{names} names on a disk of weight {weight}, not {expected}");
    }
}

#[test]
fn equal_disks_get_equal_shares_and_changes_move_the_minimum() {
    let nine = disks_of(&[1.0; 9]);
    let eight = &nine[..8];
    let of_eight = owners(eight);
    assert_shares(eight, &of_eight);

    let of_nine = owners(&nine);
    let moved: Vec<&Uuid> = of_eight.iter().zip(&of_nine).filter(|(old, new)| old != new).map(|(_, new)| new).collect();
    assert!(moved.iter().all(|new| **new == nine[8].0), "a name moved between two old disks");
    let share = moved.len() as f64 / NAMES as f64 * 100.0;
    assert!((share - 100.0 / 9.0).abs() <= 0.5, "the ninth disk took {share} %");

    // Removing one of nine, in whatever order the rest is configured, moves only its own names.
    let gone = nine[3].0;
    let mut left: Vec<(Uuid, f64)> = nine.iter().copied().filter(|disk| disk.0 != gone).collect();
    left.reverse();
    for (before, after) in of_nine.iter().zip(owners(&left)) {
        assert!(*before == after || *before == gone, "a name of another disk moved");
    }
}

#[test]
fn weighted_disks_get_the_shares_of_their_weights() {
    let disks = disks_of(&[1.0, 2.0, 3.0, 4.0]);
    let before = owners(&disks);
    assert_shares(&disks, &before);

    let larger = disks_of(&[1.0, 2.0, 3.0, 4.0, 2.5]);
    let after = owners(&larger);
    assert_shares(&larger, &after);
    for (old, new) in before.iter().zip(after) {
        assert!(*old == new || new == larger[4].0, "a name moved between two old disks");
    }
}

proptest! {
    #[test]
    fn every_temp_form_has_the_owner_of_its_final_form(
        hash in "[0-9a-f]{64}", number in 0u32.., random in "[A-Za-z0-9]{6}", disks in 1usize..=64,
    ) {
        let placement = Placement::new(&disks_of(&vec![1.0; disks])).unwrap();
        let owner = |name: String| placement.owner(&PlacementKey::of(name.as_bytes()));
        for key in [format!("m.1@0x0@0@{hash}@user.alice"), format!("{hash}_123")] {
            let published = owner(format!("{key}.bin"));
            prop_assert!(published.is_some());
            for form in [
                format!("{key}.data"),
                format!("{key}.tmp"),
                format!("{key}.tmp{number}"),
                format!("{key}.tmp.{random}"),
                format!("{key}.bin_{number}.tmp"),
                format!("{key}.part"),
                format!("{key}.bin.partial"),
                format!(".{key}.bin.{random}"),
            ] {
                prop_assert_eq!(owner(form.clone()), published, "{}", form);
            }
        }
    }

    #[test]
    fn a_rank_begins_with_the_owner_and_is_what_removals_leave(
        name in "[a-z0-9]{1,40}", weights in prop::collection::vec(0.1f64..10.0, 1..12),
    ) {
        let disks = disks_of(&weights);
        let key = PlacementKey::of(name.as_bytes());
        let rank = Placement::new(&disks).unwrap().rank(&key);
        let mut left = disks.clone();
        for number in rank.iter() {
            let owner = Placement::new(&left).unwrap().owner(&key).unwrap();
            prop_assert_eq!(left[owner.index()].0, disks[number.index()].0);
            left.remove(owner.index());
        }
        prop_assert!(left.is_empty());
    }

    #[test]
    fn equal_weights_rank_by_u_whatever_they_are(name in "[a-z0-9]{1,40}", weight in 0.1f64..10.0) {
        let key = PlacementKey::of(name.as_bytes());
        let rank = |weight| Placement::new(&disks_of(&[weight; 9])).unwrap().rank(&key);
        prop_assert_eq!(&*rank(weight), &*rank(1.0));
    }
}
