//! "Did you mean": the known word nearest to an unknown one.
//!
//! Called where an option or a key is not known. Pure.

/// `; did you mean 'word'?` for the nearest known word, or nothing if none is near.
pub fn hint<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let limit = if unknown.chars().count() <= 3 { 1 } else { 2 };
    known
        .into_iter()
        .map(|word| (distance(unknown, word), word))
        .filter(|(distance, word)| *distance <= limit && *distance < word.len())
        .min()
        .map(|(_, word)| format!("; did you mean '{word}'?"))
        .unwrap_or_default()
}

/// Edits between two words: insert, delete, replace, or swap two neighbours. Long input counts as far away.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(65).collect();
    let right: Vec<char> = right.chars().take(65).collect();
    if left.len() > 64 || right.len() > 64 {
        return usize::MAX;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, r) in right.iter().enumerate() {
            let replace = last[j] + usize::from(l != r);
            let mut best = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left[i - 1] == *r && right[j - 1] == *l {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word() {
        let known = ["high", "low", "limit", "entry_ttl", "ro"];
        let table = [
            ("hihg", "high"),
            ("limt", "limit"),
            ("entry-ttl", "entry_ttl"),
            ("r", "ro"),
        ];
        for (unknown, word) in table {
            assert_eq!(
                hint(unknown, known),
                format!("; did you mean '{word}'?"),
                "{unknown}"
            );
        }
        assert_eq!(hint("colour", known), "");
        assert_eq!(hint("", known), "");
        assert_eq!(hint(&"x".repeat(100_000), known), "");
    }
}
