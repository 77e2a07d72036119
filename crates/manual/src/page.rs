//! A document in Markdown, and its page.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::BTreeMap;

const STYLE: &str = concat!(
    include_str!("../../report/src/html/plot.css"),
    include_str!("../../report/src/html/style.css"),
    include_str!("manual.css")
);

/// A parsed document, whose headings have anchors.
#[derive(Debug)]
pub(crate) struct Document {
    title: String,
    events: Vec<Event<'static>>,
}

/// Place to which a link leads.
pub(crate) struct Link {
    pub(crate) href: String,
    /// Title of the document there, which takes the place of a file name as the text of the link.
    pub(crate) title: Option<String>,
}

/// A page to render.
pub(crate) struct Page<'a> {
    pub(crate) document: &'a Document,
    /// Link on the page for one in the document; `None` for an address, which stays.
    pub(crate) link: &'a dyn Fn(&str) -> Option<Link>,
    pub(crate) summary: &'a Document,
    /// The same for links of the summary.
    pub(crate) summary_link: &'a dyn Fn(&str) -> Option<Link>,
    /// Link of the summary to this page.
    pub(crate) own: &'a str,
}

impl Document {
    pub(crate) fn parse(text: &str) -> Self {
        let options = Options::ENABLE_TABLES | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
        let parsed: Vec<_> = Parser::new_ext(text, options).map(Event::into_static).collect();
        let (mut events, mut seen, mut title) = (Vec::new(), BTreeMap::new(), String::new());
        for (at, event) in parsed.iter().enumerate() {
            match event {
                Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
                    let heading = parsed[at..].iter();
                    let heading = heading.take_while(|event| !is_heading_end(event));
                    let heading: String = heading.filter_map(text_of).collect();
                    let id = anchor(&heading);
                    let earlier = seen.entry(id.clone()).or_insert(0);
                    let id = if *earlier == 0 { id } else { format!("{id}-{earlier}") };
                    *earlier += 1;
                    if title.is_empty() {
                        title = heading;
                    }
                    events.push(Event::Start(Tag::Heading {
                        level: *level,
                        id: Some(CowStr::from(id)),
                        classes: classes.clone(),
                        attrs: attrs.clone(),
                    }));
                }
                Event::Start(Tag::Table(_)) => {
                    let scroll = r#"<div class="scroll prose" role="region" tabindex="0">"#;
                    events.extend([Event::Html(scroll.into()), event.clone()]);
                }
                Event::End(TagEnd::Table) => {
                    events.extend([event.clone(), Event::Html("</div>\n".into())]);
                }
                other => events.push(other.clone()),
            }
        }
        Self { title, events }
    }

    /// Returns the targets of links and pictures.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.as_ref())
            }
            _ => None,
        })
    }

    pub(crate) fn has_anchor(&self, anchor: &str) -> bool {
        self.events.iter().any(|event| {
            matches!(event, Event::Start(Tag::Heading { id: Some(id), .. }) if **id == *anchor)
        })
    }

    fn html(&self, link: &dyn Fn(&str) -> Option<Link>) -> String {
        let mut title = None;
        let events = self.events.iter().cloned().map(|mut event| match event {
            Event::Start(
                Tag::Link { ref mut dest_url, .. } | Tag::Image { ref mut dest_url, .. },
            ) => {
                if let Some(link) = link(dest_url) {
                    *dest_url = link.href.into();
                    title = link.title;
                }
                event
            }
            Event::Text(ref text) if text.ends_with(".md") => {
                title.take().map_or(event, |title| Event::Text(title.into()))
            }
            Event::End(TagEnd::Link) => {
                title = None;
                event
            }
            _ => event,
        });
        let mut text = String::new();
        html::push_html(&mut text, events);
        text
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }
}

fn is_heading_end(event: &Event<'_>) -> bool {
    matches!(event, Event::End(TagEnd::Heading(_)))
}

fn text_of(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Text(text) | Event::Code(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(|c| if c == ' ' { '-' } else { c }.to_lowercase()).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns a page without scripts and external resources.
pub(crate) fn render(page: &Page<'_>) -> String {
    let contents = page.summary.html(page.summary_link);
    let own = format!("<a href=\"{}\"", page.own);
    let contents = contents.replace(&own, &format!("{own} aria-current=\"page\""));
    let title = escaped(&page.document.title);
    let body = page.document.html(page.link);
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="script-src 'none'; object-src 'none'">
<link rel="icon" href="data:,">
<title>{title} - Tollgate</title>
<style>
{STYLE}</style>
</head>
<body class="manual">
<p class="to-contents"><a href="#contents">Contents</a></p>
<main>
{body}</main>
<nav id="contents" aria-label="Contents">
{contents}</nav>
</body>
</html>
"##
    )
}
