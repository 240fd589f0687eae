//! What can be reached from outside, one line each.

use std::collections::BTreeMap;
use std::fmt::Write;

use quote::ToTokens;
use syn::{Attribute, Fields, FnArg, ImplItem, Item, ItemImpl, Signature, TraitItem, Type, Visibility};

use crate::crate_tree::{Found, ModulePath, Tree, attributes, name_of, names_of_use};

/// The listing of a crate.
pub(crate) fn of(tree: &Tree) -> String {
    let mut listing = Listing { tree, impls: impls(tree), given: BTreeMap::new(), out: String::new() };
    listing.module(&Vec::new(), &[]);
    listing.out
}

/// The `impl` blocks of each type, by where the type stands.
fn impls(tree: &Tree) -> BTreeMap<Found, Vec<&ItemImpl>> {
    let mut impls: BTreeMap<Found, Vec<&ItemImpl>> = BTreeMap::new();
    for (path, module) in tree.modules() {
        for item in &module.items {
            let Item::Impl(block) = item else { continue };
            let Type::Path(name) = block.self_ty.as_ref() else { continue };
            let segments: Vec<_> = name.path.segments.iter().map(|part| part.ident.to_string()).collect();
            impls.entry(tree.resolve(path, &segments)).or_default().push(block);
        }
    }
    impls
}

struct Listing<'a> {
    tree: &'a Tree,
    impls: BTreeMap<Found, Vec<&'a ItemImpl>>,
    /// What was listed, and as what.
    given: BTreeMap<Found, String>,
    out: String,
}

impl Listing<'_> {
    /// What is public in the module at `path`, which the outside knows as `shown`: its modules in the order
    /// of their names, then what it brings from elsewhere and has itself.
    fn module(&mut self, path: &ModulePath, shown: &[String]) {
        let Some(module) = self.tree.module(path) else { return };
        let mut inner: Vec<_> = module
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Mod(module) if is_open(&module.vis, &module.attrs) => Some(module),
                _ => None,
            })
            .collect();
        inner.sort_by_key(|module| module.ident.to_string());
        for module in inner {
            let name = module.ident.to_string();
            let shown: Vec<_> = shown.iter().cloned().chain([name.clone()]).collect();
            let _ = writeln!(self.out, "mod {}{}", shown.join("::"), condition(&module.attrs));
            self.module(&path.iter().cloned().chain([name]).collect(), &shown);
        }
        // Name here, what it is.
        let mut names: Vec<(String, Found)> = Vec::new();
        self.collect(path, &mut names);
        names.sort();
        names.dedup();
        // What stands for something of elsewhere in the crate comes last: it may be listed by then.
        for (name, found) in names {
            self.item(shown, &name, &found);
        }
    }

    fn collect(&self, path: &ModulePath, names: &mut Vec<(String, Found)>) {
        let Some(module) = self.tree.module(path) else { return };
        for item in &module.items {
            match item {
                Item::Use(using) if is_open(&using.vis, &using.attrs) => {
                    for (name, target, is_glob) in names_of_use(&using.tree) {
                        if !is_glob {
                            names.push((name, self.tree.resolve(path, &target)));
                        } else if let Found::Own(module, name) = self.tree.resolve(path, &target) {
                            self.collect(&module.into_iter().chain([name]).collect(), names);
                        }
                    }
                }
                Item::Mod(_) | Item::Use(_) => {}
                other => {
                    if let Some(name) =
                        name_of(other).filter(|_| is_open(visibility(other), attributes(other)))
                    {
                        names.push((name.clone(), Found::Own(path.clone(), name)));
                    }
                }
            }
        }
    }

    fn item(&mut self, shown: &[String], name: &str, found: &Found) {
        let full = shown.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("::");
        let (path, own) = match found {
            Found::Foreign(path) => {
                let _ = writeln!(self.out, "use {full} = {}", path.join("::"));
                return;
            }
            Found::Own(path, own) => (path, own),
        };
        if let Some(before) = self.given.get(found) {
            let _ = writeln!(self.out, "use {full} = {before}");
            return;
        }
        let Some(module) = self.tree.module(path) else { return };
        let is_it = |item: &&Item| name_of(item).as_ref() == Some(own) && !matches!(item, Item::Mod(_));
        let Some(item) = module.items.iter().find(is_it).filter(|item| !is_hidden(attributes(item))) else {
            return;
        };
        self.given.insert(found.clone(), full.clone());
        let marks = marks(attributes(item));
        match item {
            Item::Const(item) => self.line(0, &format!("{marks}const {full}: {}", text(&item.ty))),
            Item::Static(item) => self.line(0, &format!("{marks}static {full}: {}", text(&item.ty))),
            Item::Type(item) => self.line(0, &format!("{marks}type {full} = {}", text(&item.ty))),
            Item::Fn(item) => self.line(0, &format!("{marks}{}", signature(&item.sig, &full))),
            Item::Struct(item) => {
                let generics = text(&item.generics);
                let fields = match &item.fields {
                    Fields::Unnamed(fields) if fields.unnamed.iter().all(|field| is_public(&field.vis)) => {
                        let types: Vec<_> = fields.unnamed.iter().map(|field| text(&field.ty)).collect();
                        format!("({})", types.join(", "))
                    }
                    _ => String::new(),
                };
                self.line(0, &format!("{marks}struct {full}{generics}{fields}"));
                if let Fields::Named(fields) = &item.fields {
                    for field in fields.named.iter().filter(|field| is_open(&field.vis, &field.attrs)) {
                        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                        self.line(1, &format!("{name}: {}", text(&field.ty)));
                    }
                }
                self.blocks(found);
            }
            Item::Enum(item) => {
                self.line(0, &format!("{marks}enum {full}{}", text(&item.generics)));
                for variant in &item.variants {
                    self.line(
                        1,
                        &format!("{}{}{}", marks_of(&variant.attrs), variant.ident, fields(&variant.fields)),
                    );
                }
                self.blocks(found);
            }
            Item::Trait(item) => {
                let above: Vec<_> = item.supertraits.iter().map(text).collect();
                let above = if above.is_empty() { String::new() } else { format!(": {}", above.join(" + ")) };
                self.line(0, &format!("{marks}trait {full}{}{above}", text(&item.generics)));
                for part in &item.items {
                    self.of_trait(part);
                }
            }
            _ => {}
        }
    }

    fn of_trait(&mut self, part: &TraitItem) {
        match part {
            TraitItem::Fn(function) if !is_hidden(&function.attrs) => {
                let given = if function.default.is_some() { " { … }" } else { "" };
                let name = function.sig.ident.to_string();
                self.line(1, &format!("{}{given}", signature(&function.sig, &name)));
            }
            TraitItem::Const(constant) => {
                self.line(1, &format!("const {}: {}", constant.ident, text(&constant.ty)));
            }
            TraitItem::Type(kind) => self.line(1, &format!("type {}", kind.ident)),
            _ => {}
        }
    }

    /// The public functions of a type, and the traits that it has.
    fn blocks(&mut self, found: &Found) {
        let blocks = self.impls.get(found).cloned().unwrap_or_default();
        let (traits, own): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| block.trait_.is_some());
        for part in own.iter().flat_map(|block| &block.items) {
            match part {
                ImplItem::Fn(function) if is_open(&function.vis, &function.attrs) => {
                    let name = function.sig.ident.to_string();
                    let line = format!("{}{}", marks(&function.attrs), signature(&function.sig, &name));
                    self.line(1, &line);
                }
                ImplItem::Const(constant) if is_open(&constant.vis, &constant.attrs) => {
                    self.line(1, &format!("const {}: {}", constant.ident, text(&constant.ty)));
                }
                _ => {}
            }
        }
        let mut lines: Vec<_> = traits
            .iter()
            .filter_map(|block| {
                let (_, name, _) = block.trait_.as_ref()?;
                let (generics, kind) = (text(&block.generics), text(&block.self_ty));
                Some(format!("impl{generics} {} for {kind}", text(name)))
            })
            .collect();
        lines.sort();
        lines.iter().for_each(|line| self.line(1, line));
    }

    fn line(&mut self, depth: usize, line: &str) {
        let _ = writeln!(self.out, "{}{line}", "    ".repeat(depth));
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_open(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    is_public(visibility) && !is_hidden(attributes)
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    let is_doc = |attribute: &&Attribute| attribute.path().is_ident("doc");
    attributes
        .iter()
        .filter(is_doc)
        .any(|attribute| attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "hidden"))
}

fn visibility(item: &Item) -> &Visibility {
    match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => &Visibility::Inherited,
    }
}

/// The attributes that make a difference to whoever uses an item.
fn marks(attributes: &[Attribute]) -> String {
    marks_of(attributes) + &if_must_use(attributes)
}

fn if_must_use(attributes: &[Attribute]) -> String {
    let is_it = |attribute: &Attribute| attribute.path().is_ident("must_use");
    if attributes.iter().any(is_it) { "#[must_use] ".to_owned() } else { String::new() }
}

fn marks_of(attributes: &[Attribute]) -> String {
    let is_one = |name: &str| ["derive", "non_exhaustive", "cfg"].contains(&name);
    let name = |attribute: &Attribute| attribute.path().get_ident().map(ToString::to_string);
    let marked = attributes.iter().filter(|attribute| name(attribute).is_some_and(|name| is_one(&name)));
    marked.map(|attribute| format!("{} ", text(attribute))).collect()
}

fn condition(attributes: &[Attribute]) -> String {
    let is_one = |attribute: &&Attribute| attribute.path().is_ident("cfg");
    attributes.iter().filter(is_one).map(|attribute| format!(" {}", text(attribute))).collect()
}

fn fields(fields: &Fields) -> String {
    match fields {
        Fields::Unit => String::new(),
        Fields::Unnamed(fields) => {
            let types: Vec<_> = fields.unnamed.iter().map(|field| text(&field.ty)).collect();
            format!("({})", types.join(", "))
        }
        Fields::Named(fields) => {
            let one = |field: &syn::Field| {
                let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{name}: {}", text(&field.ty))
            };
            let fields: Vec<_> = fields.named.iter().map(one).collect();
            format!(" {{ {} }}", fields.join(", "))
        }
    }
}

/// A function's head, with names of arguments as they are written.
fn signature(signature: &Signature, name: &str) -> String {
    let arguments: Vec<_> = signature
        .inputs
        .iter()
        .map(|argument| match argument {
            // Whether it is `mut` is nobody's business.
            FnArg::Receiver(receiver) => text(receiver).trim_start_matches("mut ").to_owned(),
            FnArg::Typed(argument) => format!("{}: {}", text(&argument.pat), text(&argument.ty)),
        })
        .collect();
    let is_async = if signature.asyncness.is_some() { "async " } else { "" };
    let is_const = if signature.constness.is_some() { "const " } else { "" };
    let generics = text(&signature.generics);
    let output = text(&signature.output);
    let output = if output.is_empty() { output } else { format!(" {output}") };
    let condition = signature.generics.where_clause.as_ref().map(|clause| format!(" {}", text(clause)));
    let condition = condition.unwrap_or_default();
    let condition = condition.trim_end_matches(',');
    format!("{is_const}{is_async}fn {name}{generics}({}){output}{condition}", arguments.join(", "))
}

/// Tokens as a person writes them.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" : ", ": "),
        (" ,", ","),
        (" ;", ";"),
        ("& ", "&"),
        (" < ", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        ("[ ", "["),
        (" ]", "]"),
        (" [", "["),
        ("# [", "#["),
        ("& mut[", "&mut ["),
        (",>", ">"),
        (",)", ")"),
    ] {
        text = text.replace(from, to);
    }
    text.replace("&mut[", "&mut [").replace("->", " -> ").replace("  ", " ").trim().to_owned()
}
