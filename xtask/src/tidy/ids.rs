//! The ids of requirements and hazards that exist, and where text mentions them.

/// Prefix, greatest number, digits.
const SERIES: [(&str, u32, usize); 5] =
    [("OBX", 107, 3), ("IBX", 130, 3), ("HOT", 25, 2), ("WRK", 12, 2), ("BUS", 13, 2)];
const HAZARD_MAX: u32 = 65;

/// Requirements, then hazards.
pub(crate) fn all() -> impl Iterator<Item = String> {
    SERIES
        .into_iter()
        .flat_map(|(prefix, max, digits)| (1..=max).map(move |number| format!("{prefix}-{number:0digits$}")))
        .chain((1..=HAZARD_MAX).map(|number| format!("H{number}")))
}

pub(crate) fn exists(id: &str) -> bool {
    let Some((prefix, number)) = id.split_once('-') else {
        return is_hazard(id) && !is_bad_hazard(id);
    };
    SERIES.into_iter().any(|(known, max, digits)| prefix == known && number.len() == digits && in_range(number, max))
}

/// Three capitals, a hyphen and a number, or H and a number: meant as an id, whether it exists or not.
pub(crate) fn looks_like_one(word: &str) -> bool {
    let is_requirement = word.split_once('-').is_some_and(|(prefix, number)| {
        prefix.len() == 3 && prefix.bytes().all(|byte| byte.is_ascii_uppercase()) && is_number(number)
    });
    is_requirement || is_hazard(word)
}

pub(crate) fn is_hazard(word: &str) -> bool {
    word.strip_prefix('H').is_some_and(is_number)
}

/// Requirements and hazards that a text speaks of.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Mentions {
    pub(crate) ids: Vec<String>,
    pub(crate) malformed: Vec<String>,
}

pub(crate) fn mentions(text: &str) -> Mentions {
    let mut found = Mentions::default();
    for word in text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')) {
        if exists(word) {
            found.ids.push(word.to_owned());
        } else if starts_a_series(word) || is_bad_hazard(word) {
            found.malformed.push(word.to_owned());
        }
    }
    found
}

/// Only our prefixes: `UTF-8` is no requirement.
fn starts_a_series(word: &str) -> bool {
    let prefix = word.split_once('-').map(|(prefix, _)| prefix);
    prefix.is_some_and(|prefix| SERIES.iter().any(|(known, ..)| *known == prefix))
}

fn is_bad_hazard(word: &str) -> bool {
    word.strip_prefix('H')
        .is_some_and(|number| is_number(number) && (number.starts_with('0') || !in_range(number, HAZARD_MAX)))
}

fn in_range(number: &str, max: u32) -> bool {
    is_number(number) && number.parse().is_ok_and(|number| (1..=max).contains(&number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_287_requirements_and_65_hazards_and_all_exist() {
        assert_eq!(all().filter(|id| is_hazard(id)).count(), 65);
        assert_eq!(all().count(), 287 + 65);
        assert!(all().all(|id| exists(&id) && looks_like_one(&id)));
    }

    #[test]
    fn near_misses_do_not_exist() {
        for id in ["OBX-000", "OBX-108", "OBX-1", "OBX-0001", "HOT-026", "HOT-26", "ABC-001", "OBX", "H", "H0", "H66"] {
            assert!(!exists(id), "{id}");
        }
    }

    #[test]
    fn mentions_are_told_from_other_words() {
        let found = mentions("OBX-001, (IBX-130) in UTF-8; H7 and H65. Bad: OBX-7, BUS-014, H0, H66, H07.");
        assert_eq!(found.ids, ["OBX-001", "IBX-130", "H7", "H65"]);
        assert_eq!(found.malformed, ["OBX-7", "BUS-014", "H0", "H66", "H07"]);
    }
}
