//! "Did you mean": the known word nearest to an unknown one.
//!
//! Called where an option or a key is not known. Pure.

/// `; did you mean 'word'?` for the nearest known word, or nothing if none is near.
pub fn hint<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // No word is that long, and the distance costs the product of both lengths.
    if unknown.len() > 64 {
        return String::new();
    }
    let limit = if unknown.chars().count() <= 3 { 1 } else { 2 };
    known
        .into_iter()
        .map(|word| (strsim::osa_distance(unknown, word), word))
        .filter(|(distance, word)| *distance <= limit && *distance < word.len())
        .min()
        .map(|(_, word)| format!("; did you mean '{word}'?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word() {
        let known = ["high", "low", "limit", "entry_ttl", "ro"];
        let table = [("hihg", "high"), ("limt", "limit"), ("entry-ttl", "entry_ttl"), ("r", "ro")];
        for (unknown, word) in table {
            assert_eq!(hint(unknown, known), format!("; did you mean '{word}'?"), "{unknown}");
        }
        assert_eq!(hint("colour", known), "");
        assert_eq!(hint("", known), "");
        assert_eq!(hint(&"x".repeat(100_000), known), "");
    }
}
