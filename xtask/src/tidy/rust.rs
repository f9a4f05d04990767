//! Functions in Rust sources, as far as the layout of rustfmt shows them.

use std::collections::BTreeSet;

use super::tree::lines;

#[derive(Debug, PartialEq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: usize,
    /// Names of the `mod` blocks around it, outermost first.
    pub(crate) modules: Vec<&'a str>,
    /// Its doc comment, or empty.
    pub(crate) docs: String,
    pub(crate) is_public_async: bool,
    /// Whether the test runner runs it, by itself or through a macro of its file that lists it.
    pub(crate) is_test: bool,
}

/// Indentation stands for nesting: rustfmt has run before.
pub(crate) fn functions(text: &str) -> Vec<Function<'_>> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let (mut docs, mut is_test) = (String::new(), false);
    let listed = listed(text);
    let mut found = Vec::new();
    for (number, line) in lines(text) {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code == "}" {
            open.retain(|(depth, _)| *depth < indent);
        }
        if let Some(comment) = code.strip_prefix("///") {
            docs.push_str(comment);
            docs.push('\n');
        } else if let Some(name) = function_name(code) {
            found.push(Function {
                name,
                line: number,
                modules: open.iter().map(|(_, module)| *module).collect(),
                docs: std::mem::take(&mut docs),
                is_public_async: code.starts_with("pub async fn "),
                is_test: std::mem::take(&mut is_test) || listed.contains(name),
            });
        } else if continues_head(code) {
            is_test |= marks_test(code);
        } else {
            (docs, is_test) = (String::new(), false);
            if let Some(module) = module_name(code) {
                open.push((indent, module));
            }
        }
    }
    found
}

fn function_name(code: &str) -> Option<&str> {
    let mut rest = strip_visibility(code);
    while let Some(after) = ["async ", "const "].iter().find_map(|word| rest.strip_prefix(word)) {
        rest = after;
    }
    let rest = rest.strip_prefix("fn ")?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let (name, after) = rest.split_at(end);
    after.starts_with(['(', '<']).then_some(name)
}

fn module_name(code: &str) -> Option<&str> {
    strip_visibility(code).strip_prefix("mod ")?.strip_suffix(" {")
}

fn strip_visibility(code: &str) -> &str {
    match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with(' ') => rest.trim_start(),
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(code, |(_, after)| after),
        _ => code,
    }
}

/// `#[test]`, `#[tokio::test(…)]` and their like.
fn marks_test(code: &str) -> bool {
    let path = code.strip_prefix("#[").and_then(|rest| rest.split(['(', ']']).next());
    path.is_some_and(|path| path.rsplit("::").next() == Some("test"))
}

/// The names that macro calls such as `on_every_backend! { … }` list: the scenarios that these make tests of. Lines with
/// anything but names are code.
fn listed(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in text.lines() {
        let opens =
            line.split_once("! {").is_some_and(|(path, _)| path.chars().all(|c| is_word_part(c) || " :".contains(c)));
        if (opens || inside) && !line.contains(['(', '.', '=', ';', '"', '/']) {
            names.extend(line.split(|c: char| !is_word_part(c)).filter(|word| !word.is_empty()));
        }
        inside = (opens || inside) && !line.trim_end().ends_with('}');
    }
    names
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Attributes may stand between a doc comment and its function, also over several lines.
fn continues_head(code: &str) -> bool {
    code.starts_with("#[") || code == ")]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_know_their_modules_and_docs() {
        let text = "/// Says OBX-001.\n#[must_use]\npub async fn first<H: Harness>(h: &H) {\n}\n\
                    struct S;\nmod inner {\n    #[test]\n    fn second() {\n    }\n}\nfn third() {}\n\
                    // fn fourth() {}\n";
        let found = functions(text);
        let names: Vec<_> = found.iter().map(|function| (function.name, function.line)).collect();
        assert_eq!(names, [("first", 3), ("second", 8), ("third", 11)]);
        assert!(found[0].docs.contains("OBX-001") && found[0].is_public_async);
        assert_eq!(found[1].modules, ["inner"]);
        assert!(found[2].modules.is_empty() && found[2].docs.is_empty());
        assert_eq!(found.iter().map(|function| function.is_test).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn tests_are_told_from_helpers() {
        let text = "#[tokio::test(flavor = \"multi_thread\")]\nasync fn runs() {}\nasync fn scenario<B>() {}\n\
                    #[cfg(test)]\nfn helper() {}\nmacro_rules! make {\n    ($name:ident) => {};\n}\n\
                    make! {\n    scenario\n}\nmake! { @ memory Memory, another }\nfn another() {}\nfn macro_rules() {}\n";
        let tests = functions(text).into_iter().filter(|function| function.is_test).map(|function| function.name);
        assert_eq!(tests.collect::<Vec<_>>(), ["runs", "scenario", "another"]);
    }
}
