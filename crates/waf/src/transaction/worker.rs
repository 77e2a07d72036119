//! Memory that one thread needs to run rules.

use std::sync::Arc;

use crate::caches::Caches;
use crate::plan::Gate;
use crate::rule::Phase;
use crate::ruleset::RuleSet;

use super::Transaction;

/// Browser headers, with typical values.
const SAMPLE_HEADERS: [(&[u8], &[u8]); 14] = [
    (b"Host", b"www.example.com"),
    (b"User-Agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (b"Accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    (b"Accept-Language", b"en-US,en;q=0.5"),
    (b"Accept-Encoding", b"gzip, deflate, br"),
    (b"Referer", b"https://www.example.com/list/of/things?page=2&sort=price&view=list#top"),
    (b"Cookie", b"session=8f14e45fceea167a5a36dedd4bea2543; theme=dark-blue; name=J%C3%BCrgen%20O'Neil; since=2026-01-14T09:31:22.5Z; _ga=GA1.2.345.678"),
    (b"Connection", b"keep-alive"),
    (b"Cache-Control", b"max-age=0, no-cache"),
    (b"Upgrade-Insecure-Requests", b"1"),
    (b"If-Modified-Since", b"Wed, 14 Jan 2026 09:31:22 GMT"),
    (b"If-None-Match", b"\"5e1f-64b8c2\""),
    (b"Sec-Fetch-Mode", b"navigate"),
    (b"X-Forwarded-For", b"192.0.2.17, 2001:db8::17"),
];

type Sample = ([&'static [u8]; 2], &'static [u8], &'static [u8]);

const SAMPLES: [Sample; 4] = [
    (
        [b"GET", b"/a/b-c/d.html?id=17&q=blue+shoes&r=%2Fhome%3Fx%3Dy&price=10-20.5&from=2026-01-14T09:31:22Z&mail=jane.doe%40example.com&token=8f14e45f-ceea-167a&ids[]=1,2,3&next=%2Flist%3Fsort%3Dname%26date%3Dtoday%26user%3Dx%26session.id%3D5%26log%3Don"],
        b"text/plain",
        b"",
    ),
    ([b"GET", b"/catalogue/list.html"], b"text/plain", b""),
    (
        [b"POST", b"/form"],
        b"application/x-www-form-urlencoded",
        b"name=Jane+Doe&count=17&zero=0&phone=%2B44+20+7946+0958&text=It's+%22fine%22%2C+and+(mostly)+50%25+of+a+%26+b%3B+select+one+or+two.+What+is+it%3F+No%21%0D%0AYes%3A+a+long+sentence%2C+with+numbers+like+3.5+and+17%2C+from+here+to+there+-+as+ever&time=In+time+we+saw+that+all+of+this+could+not+have+been+made+by+one+person+alone.+Some+people+who+work+here+would+rather+be+at+home+with+their+children+than+go+out+again%2C+but+when+the+new+house+was+ready+they+came+back+and+found+two+large+rooms%2C+a+small+kitchen+and+a+garden+under+great+old+trees.+How+long+does+it+take%3F+Just+call+us+before+the+end+of+next+week%2C+give+the+number+of+your+order%2C+and+we+shall+send+what+you+need+on+the+same+day%21+Which+country+do+you+live+in%3F+Most+things+cost+less+if+they+are+brought+by+ship%3B+others+come+through+the+air.+You+may+also+look+for+a+different+size%2C+colour+or+picture+on+our+page%3A+every+part+has+its+own+name.+My+mother+always+said%3A+think+first%2C+then+say+it+well.+Her+answer+was+very+good%2C+so+I+must+still+study+how+such+words+should+be+used&url=https%3A%2F%2Fexample.com%2Fa%3Fb%3Dc%23d&mail=jane.doe%40example.com&empty=&letter=Dear+team%2C+thank+you+for+the+quick+reply%3B+I+ordered+two+boxes+last+Monday+and+only+one+has+arrived+so+far.+The+parcel+looks+damaged%2C+its+label+is+torn%2C+and+the+lid+does+not+close.+Could+somebody+check+whether+the+second+box+was+sent+at+all%3F+If+not%2C+please+cancel+it%2C+or+send+it+to+my+office%3A+I+am+there+until+six+every+day+except+Friday.+I+would+like+a+smaller+size+next+time%2C+perhaps+in+black+or+dark+green.+Your+page+says+that+returns+are+free+within+thirty+days%2C+yet+the+form+asks+me+to+pay+first.+Why+is+that%3F+My+wife+had+the+same+problem+during+the+summer%2C+when+she+wanted+to+change+her+address.+We+both+think+the+site+is+easy+to+use%2C+though%3A+the+search+works%2C+most+pictures+load+fast%2C+and+the+prices+are+fair.+Let+me+know+what+I+need+to+do%2C+which+papers+you+want%2C+and+how+long+such+things+usually+take.+By+the+way%2C+is+the+blue+model+still+being+made%2C+or+should+we+look+for+another+kind%3F+Our+neighbour%2C+an+old+man+who+lives+alone%2C+may+buy+it+too%3B+he+will+call+you+himself.+No+hurry%2C+just+tell+us+before+the+end+of+June.+Best+wishes+and+many+thanks%2C+Anna&links=%2Fshop%2Fnew%2Fitems%3Fsort%3Dnewest+%2Fstore%2Fcategory%3Fview%3Dlist+size%3Dlarge+%2Fproducts%2Fsearch%3Fquery%3Dlamp+color%3Dwhite+brand%3Dother+%2Fblog%2Fposts%3Fauthor%3Dsam+tag%3Dfood+%2Faccount%2Forders%3Fstatus%3Dopen+date%3Dweek+%2Fhelp%2Fcontact%3Flang%3Den+source%3Dfooter+%2Fnews%2Farchive%3Fyear%3D2025+month%3Dmay+%2Fimages%2Fphoto%3Fwidth%3D640+height%3D480+%2Fcart%2Fcheckout%3Fstep%3Dpayment+method%3Dcard+%2Fuser%2Fprofile%3Fname%3Dkim+city%3Drome+%2Ffiles%2Freport%3Ftype%3Dsummary+format%3Dplain+%2Fjobs%2Fapply%3Frole%3Dcook+team%3Dkitchen+%2Fevents%2Fcalendar%3Ffilter%3Dtoday+group%3Dmusic+%2Foffers%2Fdeals%3Fprice%3Dlow+discount%3Dhalf+%2Fassets%2Ffonts%3Fweight%3Dbold+style%3Dnormal&more=Hello%2C+we+found+a+few+small+errors+on+the+way.+First%2C+the+menu+at+the+left+side+covers+part+of+the+text+when+you+turn+the+phone%3B+then+the+page+jumps+back+to+its+top.+Second%2C+no+one+could+see+where+to+type+the+code+from+the+letter%2C+although+it+was+right+under+the+line+with+our+names.+Third%2C+some+people+say+that+sound+plays+by+itself+at+night.+Is+that+even+possible%3F+Now+for+the+good+news%3A+the+new+shop+is+great%2C+its+staff+knew+every+answer%2C+and+what+we+got+was+worth+far+more+than+we+had+paid.+Children+play+there%2C+too%2C+so+parents+can+read+or+drink+tea+while+they+wait.+Should+you+open+another+one+in+the+north%2C+my+sister+will+be+among+those+who+come+on+day+one.+Each+of+us+would+also+help%2C+since+this+kind+of+place+must+live%21+Only+one+more+point%3A+next+year+the+school+needs+about+three+hundred+chairs%2C+forty+tables+and+twelve+doors.+Do+you+make+large+ones+out+of+hard+wood%3F+Would+it+cost+less+by+boat+than+over+land%3F+Put+it+on+our+list%2C+then+ask+her+again+at+home.+Yours+always%2C+Peter+and+most+of+his+friends&paths=%2Fcatalogue%2Fgarden%2Ftools%3Forder%3Dbest+stock%3Dyes+%2Fcategory%2Fmusic%2Fguitar%2Flist%3Fsort%3Drating+from%3Dgermany+%2Fcollection%2Fsummer%2Fdress%3Ffit%3Dslim+length%3Dlong+%2Fregion%2Fnorth%2Fhotel%3Fguests%3Dthree+nights%3Dseven+%2Fcourse%2Fscience%2Flesson%3Flevel%3Dbasic+unit%3Dsecond+%2Frecipes%2Fbread%2Fwhite%3Ftime%3Dshort+oven%3Dhot+%2Fteam%2Fmember%2Fedit%3Frole%3Downer+active%3Dtrue+%2Fwiki%2Fhistory%2Frevision%3Fold%3Dfirst+diff%3Dnext+%2Fforum%2Ftopic%2Freply%3Fquote%3Dlast+page%3Deleven+%2Fgallery%2Fwinter%2Fboots%2Fleather%2Fbrown%3Fzoom%3Dfull+tab%3Ddetails",
    ),
    (
        [b"POST", b"/api"],
        b"application/json",
        b"{\"a\":[1,2.5,-3e4,true,null,\"x y\",\"B-00017\"],\"b\":{\"c\":\"<p>text</p>\",\"d\":\"What is it? A sentence, as people write it.\",\"e_f\":\"https://example.com/a.png\"}}",
    ),
];

const SAMPLE_RESPONSE_HEADERS: [(&[u8], &[u8]); 7] = [
    (b"Date", b"Wed, 14 Jan 2026 09:31:22 GMT"),
    (b"Server", b"nginx"),
    (b"Cache-Control", b"private, max-age=600"),
    (b"ETag", b"\"5e1f-64b8c2\""),
    (b"Set-Cookie", b"session=8f14e45fceea167a; Path=/; HttpOnly; Secure"),
    (b"Vary", b"Accept-Encoding"),
    (b"X-Frame-Options", b"SAMEORIGIN"),
];

/// Content type and body of responses. Words of the page begin phrases and literals of the rules for leaks.
const SAMPLE_RESPONSES: [(&[u8], &[u8]); 2] = [
    (
        b"text/html; charset=utf-8",
        b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Shop - New shoes &amp; more</title>\n<link rel=\"stylesheet\" href=\"/assets/site.css?v=17\">\n<script src=\"/assets/site.js\" defer></script>\n<style>body { margin: 0 auto; color: #333; }</style>\n</head>\n<body class=\"page list\">\n<!-- menu -->\n<nav><ul><li><a href=\"/\" title=\"Home\">Home</a></li><li><a href=\"/list?sort=price&amp;page=2\">Products</a></li></ul></nav>\n<h1>What is new?</h1>\n<p>It's a long sentence, with numbers like 3.5 and 17 (mostly); select one or two, and we shall send what you need on the same day. No error was found in the file: access is not denied. Meet us at the company's stand or at our original shop; look at java, common plants at comfortable prices. Exceptional offers: our system creates your table and includes a server, a driver and a warning light. Read about missing functions, an unexpected query, fatal syntax, invalid characters, databases and columns at http://example.org.</p>\n<form action=\"/search\" method=\"get\"><input type=\"text\" name=\"q\" value=\"\"><button type=\"submit\">Go!</button></form>\n<table><tr><th>Name</th><th>Price</th></tr><tr><td>Blue boots</td><td>$ 49.90</td></tr></table>\n<img src=\"/images/a-b_c.png\" alt=\"A picture\" width=\"640\">\n<script>var page = { id: 17, items: [1, 2], ok: true }; function show(x) { return x ? x : null; }</script>\n<footer>&copy; 2026 Example, 12 Main Street | <a href=\"mailto:shop@example.com\">Contact</a></footer>\n</body>\n</html>\n",
    ),
    (
        b"application/json",
        b"{\"items\":[{\"id\":17,\"name\":\"Blue boots\",\"price\":49.9,\"tags\":[\"new\",\"sale\"],\"ok\":true,\"note\":null}],\"next\":\"https://example.com/list?page=2\",\"error\":\"\",\"time\":\"2026-01-14T09:31:22Z\"}\n",
    ),
];

/// Caches and buffers of one thread. It may serve many transactions, one after the other or in turns.
#[derive(Debug, Default)]
pub struct Worker {
    rules: Option<Arc<RuleSet>>,
    caches: Caches,
    pub(crate) buffers: Buffers,
    pub(crate) gate: Gate,
    plain: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) transformed: Vec<u8>,
    pub(crate) spare: Vec<u8>,
    pub(crate) argument: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) name: Vec<u8>,
    /// Captured groups of the last match, as ranges of the value.
    pub(crate) captures: Vec<Option<(usize, usize)>>,
}

impl Worker {
    /// Creates a worker without any cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a worker that evaluates every rule on every value, without gates. It is slow and
    /// serves as the reference.
    pub fn plain() -> Self {
        Self { plain: true, ..Self::default() }
    }

    /// Prepares the worker for a rule set, so that the first request and the first page are not much slower than others: compiles the
    /// regexes and lists of phrases of the rules for response bodies, and runs sample requests and responses. Returns the transaction
    /// in which these ran, empty.
    pub fn warm_up(&mut self, rules: &Arc<RuleSet>) -> Transaction {
        if rules.settings.response_body_access && rules.uses_response_body {
            // Common words of any page reach large lists and regexes, so that samples cannot stand for all pages.
            let of_bodies = rules.rules.iter().filter(|rule| rule.phase == Phase::ResponseBody);
            let links = of_bodies.flat_map(|rule| &rule.links);
            links.filter_map(|link| link.test.as_ref()).for_each(|test| test.condition.compile());
        }
        let mut transaction = Transaction::new(Arc::clone(rules));
        // The second time the gates know which rules are skipped.
        let requests = SAMPLES.into_iter().chain(SAMPLES);
        let responses = SAMPLE_RESPONSES.into_iter().cycle();
        for ((line, kind, body), (response_kind, response)) in requests.zip(responses) {
            transaction.reset();
            transaction.request_line(line[0], line[1], b"HTTP/1.1");
            for (name, value) in SAMPLE_HEADERS {
                transaction.request_header(name, value);
            }
            transaction.request_header(b"Content-Type", kind);
            transaction.request_header(b"Content-Length", body.len().to_string().as_bytes());
            transaction.process_request_headers(self);
            transaction.append_request_body(body);
            transaction.process_request_body(self);
            transaction.response_line(b"HTTP/1.1", 200);
            for (name, value) in SAMPLE_RESPONSE_HEADERS {
                transaction.response_header(name, value);
            }
            transaction.response_header(b"Content-Type", response_kind);
            transaction.process_response_headers(self);
            transaction.append_response_body(response);
            transaction.process_response_body(self);
            transaction.process_logging(self);
        }
        transaction.reset();
        transaction
    }

    /// True if values are tested by gates before rules are evaluated.
    pub(crate) fn is_gated(&self) -> bool {
        !self.plain
    }

    /// Prepares the caches for a rule set.
    pub(crate) fn bind(&mut self, rules: &Arc<RuleSet>) {
        if self.rules.as_ref().is_none_or(|bound| !bound.shares_rules_with(rules)) {
            self.caches = Caches::new(rules.patterns);
            self.gate = Gate::new(rules);
            self.rules = Some(Arc::clone(rules));
        }
    }

    pub(crate) fn split(&mut self) -> (&mut Caches, &mut Buffers, &mut Gate) {
        (&mut self.caches, &mut self.buffers, &mut self.gate)
    }
}
