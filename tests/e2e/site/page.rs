//! The page in Chromium: every form, with and without JavaScript, layout and live counters.

use super::browser::Browser;
use super::server::Site;
use crate::support::{Workspace, wait_until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

#[test]
fn page_of_nginx_with_lua_works() {
    let workspace = Workspace::concurrent();
    let site = Site::nginx_lua(&workspace);
    check_page(&workspace, &site);
}

#[test]
fn page_of_built_in_site_works() {
    let workspace = Workspace::concurrent();
    let site = Site::origin(&workspace);
    check_page(&workspace, &site);
}

fn check_page(workspace: &Workspace, site: &Site) {
    let downloads = workspace.path("downloads");
    let mut browser = Browser::start(workspace, &downloads);
    let url = format!("http://{}/", site.address);
    check_layout(&mut browser, site, &url);
    browser.resize(1280, "light");
    check_forms(&mut browser, site, &url);
    browser.disable_scripts();
    check_forms_without_scripts(&mut browser, &url, &downloads);
}

/// An expected response: endpoint, button, status, size and a part of the text.
type Shown = (&'static str, &'static str, u16, Option<u64>, &'static str);

/// In the order of the page.
const FORMS: [Shown; 17] = [
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

/// Forms of the built-in site only, before the last.
const ORIGIN_FORMS: [Shown; 2] =
    [("delay", "Wait", 200, None, "{"), ("counters", "Count", 200, None, "\"requests\":")];

fn expected(site: &Site) -> Vec<Shown> {
    let (others, before) = FORMS.split_last().expect("forms");
    let origin: &[Shown] = if site.name == "origin" { &ORIGIN_FORMS } else { &[] };
    [before, origin, &[*others]].concat()
}

/// Presses every button of the page. Returns what the page shows then.
const PRESS_ALL: &str = r#"(async () => {
    const shown = [];
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
            shown.push({
                name: section.querySelector("h2").id,
                button: button.textContent,
                status: Number(output.dataset.status),
                size: Number(output.dataset.size),
                summary: output.querySelector("p")?.textContent,
                text: section.querySelector(".response:not([hidden])")?.textContent ?? "",
            });
        }
    }
    return shown;
})()"#;

fn check_forms(browser: &mut Browser, site: &Site, url: &str) {
    open_settled(browser, url);
    let shown = browser.evaluate(PRESS_ALL);
    let shown = shown.as_array().expect("a list");
    let expected = expected(site);
    assert_eq!(shown.len(), expected.len(), "{shown:#?}");
    for (found, (name, button, status, size, text)) in shown.iter().zip(expected) {
        assert_eq!((&found["name"], &found["button"]), (&name.into(), &button.into()), "{found:#}");
        assert_eq!(found["status"], status, "{found:#}");
        if let Some(size) = size {
            assert_eq!(found["size"], size, "{found:#}");
        }
        assert!(found["text"].as_str().expect("a text").contains(text), "{found:#}");
        let summary = found["summary"].as_str().expect("a line");
        assert!(summary.starts_with(&status.to_string()) && summary.ends_with(" ms"), "{summary}");
    }
    // The curl command follows the fields.
    let typed = browser.evaluate(
        "(() => { const size = document.getElementById('urandom-size'); size.value = '7'; \
         size.dispatchEvent(new Event('input', { bubbles: true })); \
         return size.closest('section').querySelector('.curl').textContent; })()",
    );
    assert_eq!(typed, format!("curl '{url}urandom?size=7'"));
    check_live_counters(browser, site);
    assert_eq!(browser.errors(), Vec::<String>::new(), "{}", site.name);
}

/// Opens the page and waits until it has asked the server for counters.
fn open_settled(browser: &mut Browser, url: &str) {
    browser.open(url);
    let settled =
        "[...document.querySelectorAll('.origin')].every(one => one.hidden) || !live.hidden";
    assert!(holds_soon(browser, settled), "the page waits for counters");
}

fn check_live_counters(browser: &mut Browser, site: &Site) {
    if site.name != "origin" {
        let hidden = "live.hidden && document.querySelectorAll('.origin[hidden]').length === 2";
        assert_eq!(browser.evaluate(hidden), true);
        return;
    }
    // The requests of the page itself give a rate after a second.
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

/// The browser sends the forms itself and shows the response instead of the page.
fn check_forms_without_scripts(browser: &mut Browser, url: &str, downloads: &Path) {
    let responses = [
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
    for (name, button, text) in responses {
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

/// Finds problems of layout and accessibility.
const PROBLEMS: &str = r#"(() => {
    const problems = [];
    if (document.documentElement.scrollWidth > innerWidth) problems.push("the page scrolls horizontally");
    const ids = [...document.querySelectorAll("[id]")].map(one => one.id);
    if (new Set(ids).size !== ids.length) problems.push("duplicate id");
    let level = 0;
    for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
        const own = Number(heading.tagName[1]);
        if (own > level + 1) problems.push(`heading ${heading.textContent} skips a level`);
        level = own;
    }
    for (const field of document.querySelectorAll("input, select, textarea")) {
        if (!field.labels.length) problems.push(`${field.id} has no label`);
        const { width, height } = field.getBoundingClientRect();
        if (width > 0 && Math.min(width, height) < 20) problems.push(`${field.id} is too small`);
    }
    for (const region of document.querySelectorAll("section, output, nav, [role=region]")) {
        const by = region.getAttribute("aria-labelledby");
        if (!region.getAttribute("aria-label") && !document.getElementById(by)) problems.push(`${region.tagName} has no name`);
    }
    for (const link of document.querySelectorAll("a[href^='#']")) {
        if (!document.getElementById(link.getAttribute("href").slice(1))) problems.push(`${link.href} has no target`);
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
        if (ratio < 4.5) problems.push(`${element.tagName} "${element.textContent.slice(0, 20)}" has contrast ${ratio.toFixed(2)}`);
        if (parseFloat(getComputedStyle(element).fontSize) < 12) problems.push(`${element.textContent.slice(0, 20)} is small`);
        if (box.left >= 0 && box.right > innerWidth + 0.5) problems.push(`${element.tagName} "${element.textContent.slice(0, 20)}" exceeds the window`);
    }
    if (texts < 80) problems.push(`only ${texts} texts checked`);
    return problems;
})()"#;

/// On a narrow and a wide screen, in light and dark. The screenshots stay in cargo's folder for this test.
fn check_layout(browser: &mut Browser, site: &Site, url: &str) {
    let mut backgrounds = Vec::new();
    for (width, scheme) in [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")] {
        browser.resize(width, scheme);
        open_settled(browser, url);
        assert_eq!(browser.evaluate("innerWidth"), width);
        let problems = browser.evaluate(PROBLEMS);
        assert_eq!(problems, Value::Array(vec![]), "{} at {width}, {scheme}", site.name);
        backgrounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        let screenshot = browser.screenshot();
        assert!(
            screenshot.starts_with(b"\x89PNG") && screenshot.len() > 20_000,
            "{} bytes",
            screenshot.len()
        );
        let name = format!("site-{}-{width}-{scheme}.png", site.name);
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), screenshot).expect("a file");
    }
    assert_ne!(backgrounds[0], backgrounds[1], "light and dark");
    let page = browser.evaluate("document.documentElement.outerHTML");
    let page = page.as_str().expect("a page");
    assert!(!page.contains("{{host}}"), "placeholder of the host");
    let resources = browser.evaluate(
        "performance.getEntriesByType('resource').map(one => one.name).filter(name => !name.endsWith('/counters'))",
    );
    assert_eq!(resources, Value::Array(vec![]), "the page loads other resources");
}
