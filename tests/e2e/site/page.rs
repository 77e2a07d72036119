//! The page in a real browser: every form sent, with its script and without, and every answer seen.

use super::browser::Browser;
use super::server::Site;
use crate::support::{Workspace, wait_until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

#[test]
fn the_page_of_nginx_with_lua_sends_every_form() {
    let workspace = Workspace::beside_others();
    let site = Site::nginx_lua(&workspace);
    page_works(&workspace, &site);
}

#[test]
fn the_page_of_the_built_in_site_sends_every_form_and_counts() {
    let workspace = Workspace::beside_others();
    let site = Site::origin(&workspace);
    page_works(&workspace, &site);
}

fn page_works(workspace: &Workspace, site: &Site) {
    let downloads = workspace.path("downloads");
    let mut browser = Browser::start(workspace, &downloads);
    let url = format!("http://{}/", site.address);
    is_well_laid_out(&mut browser, site, &url);
    browser.resize(1280, "light");
    sends_every_form(&mut browser, site, &url);
    browser.without_scripts(true);
    works_without_its_script(&mut browser, &url, &downloads);
}

/// An answer that has to be seen: the endpoint, the button, the status, the bytes, and a part of the text.
type Seen = (&'static str, &'static str, u16, Option<u64>, &'static str);

/// In the order of the page.
const FORMS: [Seen; 17] = [
    ("urandom", "Read", 200, Some(29), "{\"size\":2048,\"time\":0."),
    ("zero", "Read", 200, Some(29), "{\"size\":2048,\"time\":0."),
    ("sleep", "Sleep", 200, Some(17), "{\"time\":0."),
    ("download", "Download", 200, Some(20_480), "xxxxx"),
    ("upload", "Upload parts", 200, None, "{\"name\":\"note\",\"filename\":null,\"size\":5}"),
    ("upload", "Upload text", 200, Some(27), "{\"size\":10,\"time\":0."),
    ("payload", "Get", 200, Some(100), "xxxxx"),
    ("status", "200", 200, Some(14), "{\"status\":200}"),
    ("status", "204", 204, Some(0), ""),
    ("status", "404", 404, Some(14), "{\"status\":404}"),
    ("status", "418", 418, Some(14), "{\"status\":418}"),
    ("status", "503", 503, Some(14), "{\"status\":503}"),
    ("headers", "Show", 200, None, "[\"Host\","),
    ("echo", "Echo", 200, Some(12), "text=hello"),
    ("method", "GET", 200, Some(16), "{\"method\":\"GET\"}"),
    ("method", "POST", 200, Some(17), "{\"method\":\"POST\"}"),
    ("others", "Get", 200, None, "/any/other/path"),
];

/// Those that the built-in site alone has, before the last.
const OF_THE_ORIGIN: [Seen; 2] =
    [("delay", "Wait", 200, None, "{"), ("counters", "Count", 200, None, "\"requests\":")];

/// What each form has to show.
fn expected(site: &Site) -> Vec<Seen> {
    let (others, before) = FORMS.split_last().expect("forms");
    let origin: &[Seen] = if site.name == "origin" { &OF_THE_ORIGIN } else { &[] };
    [before, origin, &[*others]].concat()
}

/// Presses every button of the page, and tells what its endpoint shows then.
const PRESS: &str = r#"(async () => {
    const seen = [];
    for (const form of document.forms) {
        const section = form.closest("section");
        if (section.hidden) continue;
        for (const button of form.querySelectorAll("button")) {
            const output = section.querySelector("output");
            delete output.dataset.status;
            button.click();
            for (let tries = 0; !output.dataset.status && tries < 2000; tries += 1) {
                await new Promise(done => setTimeout(done, 5));
            }
            seen.push({
                name: section.querySelector("h2").id,
                button: button.textContent,
                status: Number(output.dataset.status),
                size: Number(output.dataset.size),
                told: output.querySelector("p")?.textContent,
                text: section.querySelector(".answer:not([hidden])")?.textContent ?? "",
            });
        }
    }
    return seen;
})()"#;

fn sends_every_form(browser: &mut Browser, site: &Site, url: &str) {
    open_settled(browser, url);
    let seen = browser.evaluate(PRESS);
    let seen = seen.as_array().expect("a list");
    let expected = expected(site);
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (found, (name, button, status, size, text)) in seen.iter().zip(expected) {
        assert_eq!((&found["name"], &found["button"]), (&name.into(), &button.into()), "{found:#}");
        assert_eq!(found["status"], status, "{found:#}");
        if let Some(size) = size {
            assert_eq!(found["size"], size, "{found:#}");
        }
        assert!(found["text"].as_str().expect("a text").contains(text), "{found:#}");
        let told = found["told"].as_str().expect("a line");
        assert!(told.starts_with(&status.to_string()) && told.ends_with(" ms"), "{told}");
    }
    // What is typed is what the curl line says, and a refusal is shown as one.
    let typed = browser.evaluate(
        "(() => { const size = document.getElementById('urandom-size'); size.value = '7'; \
         size.dispatchEvent(new Event('input', { bubbles: true })); \
         return size.closest('section').querySelector('.curl').textContent; })()",
    );
    assert_eq!(typed, format!("curl '{url}urandom?size=7'"));
    counts_live(browser, site);
    assert_eq!(browser.complaints(), Vec::<String>::new(), "{}", site.name);
}

/// Opens the page and waits until it knows whether this server counts, which takes it one question.
fn open_settled(browser: &mut Browser, url: &str) {
    browser.open(url);
    let settled =
        "[...document.querySelectorAll('.origin')].every(one => one.hidden) || !live.hidden";
    assert!(holds_soon(browser, settled), "does it count or not?");
}

/// The strip shows what the server counts, where it counts.
fn counts_live(browser: &mut Browser, site: &Site) {
    if site.name != "origin" {
        let hidden = "live.hidden && document.querySelectorAll('.origin[hidden]').length === 2";
        assert_eq!(browser.evaluate(hidden), true);
        return;
    }
    // Two counts of the page itself, a second apart, make a rate.
    let counted = "!live.hidden && document.getElementById('live-line').getAttribute('points') !== '' \
         && parseInt(document.getElementById('live-requests').textContent.replace(/,/g, '')) > 20 \
         && parseInt(document.getElementById('live-rate').textContent) >= 1";
    assert!(holds_soon(browser, counted), "{}", browser.evaluate("live.innerText"));
}

fn holds_soon(browser: &mut Browser, condition: &str) -> bool {
    let script = format!(
        "(async () => {{ for (let tries = 0; tries < 500; tries += 1) {{ if ({condition}) return true; \
         await new Promise(done => setTimeout(done, 20)); }} return false; }})()"
    );
    browser.evaluate(&script) == true
}

/// Forms are sent by the browser itself, and the answer takes the page's place.
fn works_without_its_script(browser: &mut Browser, url: &str, downloads: &Path) {
    let answers = [
        ("urandom", "Read", "{\"size\":2048,\"time\":0."),
        ("zero", "Read", "{\"size\":2048,\"time\":0."),
        ("sleep", "Sleep", "{\"time\":0."),
        ("upload", "Upload parts", "{\"name\":\"file\",\"filename\":\"\",\"size\":0}"),
        ("upload", "Upload text", "{\"size\":10,\"time\":0."),
        ("payload", "Get", "xxxxx"),
        ("status", "404", "{\"status\":404}"),
        ("headers", "Show", "[\"Host\","),
        ("echo", "Echo", "text=hello"),
        ("method", "GET", "{\"method\":\"GET\"}"),
        ("method", "POST", "{\"method\":\"POST\"}"),
        ("others", "Get", "/any/other/path"),
    ];
    for (name, button, text) in answers {
        browser.open(url);
        browser.evaluate(&press(name, button));
        browser.wait_for("Page.loadEventFired");
        let shown = browser.evaluate("document.body.innerText");
        assert!(
            shown.as_str().is_some_and(|shown| shown.contains(text)),
            "{name} {button}: {shown}"
        );
    }
    browser.open(url);
    browser.evaluate(&press("download", "Download"));
    let saved = || fs::read(downloads.join("download")).is_ok_and(|bytes| bytes.len() == 20_480);
    assert!(wait_until(Duration::from_secs(20), saved), "{:?}", fs::read_dir(downloads));
}

fn press(name: &str, button: &str) -> String {
    format!(
        "[...document.getElementById('{name}').closest('section').querySelectorAll('button')]\
         .find(button => button.textContent === '{button}').click()"
    )
}

/// What makes a page hard to read or to use.
const FLAWS: &str = r#"(() => {
    const flaws = [];
    if (document.documentElement.scrollWidth > innerWidth) flaws.push("it scrolls sideways");
    const ids = [...document.querySelectorAll("[id]")].map(one => one.id);
    if (new Set(ids).size !== ids.length) flaws.push("an id is there twice");
    let level = 0;
    for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
        const own = Number(heading.tagName[1]);
        if (own > level + 1) flaws.push(`heading ${heading.textContent} skips a level`);
        level = own;
    }
    for (const field of document.querySelectorAll("input, select, textarea")) {
        if (!field.labels.length) flaws.push(`${field.id} has no label`);
        const { width, height } = field.getBoundingClientRect();
        if (width > 0 && Math.min(width, height) < 20) flaws.push(`${field.id} is too small to hit`);
    }
    for (const region of document.querySelectorAll("section, output, nav, [role=region]")) {
        const by = region.getAttribute("aria-labelledby");
        if (!region.getAttribute("aria-label") && !document.getElementById(by)) flaws.push(`${region.tagName} has no name`);
    }
    for (const link of document.querySelectorAll("a[href^='#']")) {
        if (!document.getElementById(link.getAttribute("href").slice(1))) flaws.push(`${link.href} leads nowhere`);
    }
    const channels = color => color.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => {
        const [lr, lg, lb] = [r, g, b].map(part => part / 255)
            .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * lr + 0.7152 * lg + 0.0722 * lb;
    };
    const paper = element => {
        for (let one = element; one; one = one.parentElement) {
            const color = channels(getComputedStyle(one).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    let texts = 0;
    for (const element of document.body.querySelectorAll("*")) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        const box = element.getBoundingClientRect();
        if (!own || box.width === 0 || ["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)) continue;
        texts += 1;
        const [a, b] = [luminance(channels(getComputedStyle(element).color)), luminance(paper(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) flaws.push(`${element.tagName} "${element.textContent.slice(0, 20)}" has contrast ${ratio.toFixed(2)}`);
        if (parseFloat(getComputedStyle(element).fontSize) < 12) flaws.push(`${element.textContent.slice(0, 20)} is small`);
        if (box.left >= 0 && box.right > innerWidth + 0.5) flaws.push(`${element.tagName} "${element.textContent.slice(0, 20)}" reaches beyond the window`);
    }
    if (texts < 80) flaws.push(`only ${texts} texts were looked at`);
    return flaws;
})()"#;

/// On a phone and on a screen, in the light and in the dark. The pictures stay in the folder that cargo
/// has for this test, to be looked at.
fn is_well_laid_out(browser: &mut Browser, site: &Site, url: &str) {
    let mut papers = Vec::new();
    for (width, scheme) in [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")] {
        browser.resize(width, scheme);
        open_settled(browser, url);
        assert_eq!(browser.evaluate("innerWidth"), width);
        let flaws = browser.evaluate(FLAWS);
        assert_eq!(flaws, Value::Array(vec![]), "{} at {width} in the {scheme}", site.name);
        papers.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        let picture = browser.picture();
        assert!(
            picture.starts_with(b"\x89PNG") && picture.len() > 20_000,
            "{} bytes",
            picture.len()
        );
        let name = format!("site-{}-{width}-{scheme}.png", site.name);
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), picture).expect("a file");
    }
    assert_ne!(papers[0], papers[1], "light and dark");
    let page = browser.evaluate("document.documentElement.outerHTML");
    let page = page.as_str().expect("a page");
    assert!(!page.contains("{{host}}"), "a place of the host was forgotten");
    let outside = browser.evaluate(
        "performance.getEntriesByType('resource').map(one => one.name).filter(name => !name.endsWith('/counters'))",
    );
    assert_eq!(outside, Value::Array(vec![]), "the page loads nothing");
}
