//! Functions in Rust sources, as far as the layout of rustfmt shows them.

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
}

/// Indentation stands for nesting: rustfmt has run before.
pub(crate) fn functions(text: &str) -> Vec<Function<'_>> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut docs = String::new();
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
            });
        } else if !continues_head(code) {
            docs.clear();
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
    }
}
