//! That a comparison takes the same time whatever it compares cannot be tested without a measurement (`examples/timing.rs`
//! is one). That there is only one comparison, and that it is of this kind, can.

use std::fs;
use std::path::Path;

use pillarbox_webhook::{Secret, Secrets, Tag};

/// The code of every source file, without its tests, by its path.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
            found.push((path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string(), code));
        }
    }
}

/// Where a word stands, once for each time.
fn places<'a>(sources: &'a [(String, String)], word: &str) -> Vec<&'a str> {
    let lines = |code: &str| code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<String>();
    let mut places: Vec<_> = sources
        .iter()
        .flat_map(|(path, code)| std::iter::repeat_n(path.as_str(), lines(code).matches(word).count()))
        .collect();
    places.sort_unstable();
    places
}

/// H55: every scheme goes through one function, the only one that makes an HMAC to compare with and the only one that compares;
/// nobody else gets at the bytes of a signature, not even as a text.
#[test]
fn signatures_are_compared_in_one_place() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let one = "src/signature.rs";
    for word in ["ct_eq(", "Hmac::<Sha256>::", "fn have_signed(", "fn to_hex(", "fn to_base64("] {
        assert_eq!(places(&found, word), [one], "{word}");
    }
    assert_eq!(places(&found, ".sign("), [one], "only to be compared with");
    for word in [".to_hex()", ".to_base64()", "verify_slice", "impl PartialEq"] {
        assert_eq!(places(&found, word), [""; 0], "{word}");
    }
    let schemes = ["src/scheme/github.rs", "src/scheme/standard.rs", "src/scheme/stripe.rs"];
    assert_eq!(places(&found, ".have_signed("), schemes);
    assert_eq!(places(&found, "impl Scheme for"), schemes, "and there are no other schemes");
}

/// There for every type under one name, and a second time for those that can be compared, which makes the name ambiguous.
trait NotComparable<Which> {
    fn is_checked() {}
}

struct Once;
struct Twice;

impl<T> NotComparable<Once> for T {}
impl<T: PartialEq> NotComparable<Twice> for T {}

/// H55: this would not compile if any of them had `==`, which stops at the first byte that differs.
#[test]
fn signatures_and_secrets_have_no_equality() {
    <Tag as NotComparable<_>>::is_checked();
    <Secret as NotComparable<_>>::is_checked();
    <Secrets as NotComparable<_>>::is_checked();
}
