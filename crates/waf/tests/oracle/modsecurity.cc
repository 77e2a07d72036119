// Runs transformations, operators, parsers and libinjection of libmodsecurity 3 on given inputs, to
// record what this crate is compared with. generate.py builds and calls it. It reads one case a line and
// writes the line back with the result; all bytes are hexadecimal, columns are separated by tabs.
//
//   transformations            NAME INPUT               -> OUTPUT
//   injections                 VALUE                    -> SQLI FINGERPRINT XSS
//   operators RULES            VALUE                    -> ids of the rules of the file that match it
//   targets RULES              TARGET COOKIES           -> NAME:VALUE ...
//   bodies RULES               CONTENT-TYPE BODY        -> NAME:VALUE ...

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <modsecurity/actions/action.h>
#include <modsecurity/modsecurity.h>
#include <modsecurity/rules_set.h>
#include <modsecurity/transaction.h>

// Exported by the library, but not declared in its headers.
namespace modsecurity::actions::transformations {
class Transformation : public Action {
 public:
    static Transformation *instantiate(std::string name);
};
}  // namespace modsecurity::actions::transformations
extern "C" {
int libinjection_sqli(const char *value, size_t length, char fingerprint[]);
int libinjection_xss(const char *value, size_t length);
}

using modsecurity::AnchoredSetVariable;
using modsecurity::AnchoredVariable;
using modsecurity::Transaction;
using modsecurity::actions::transformations::Transformation;
using std::string;

static string unhex(const string &text) {
    string bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

static string hex(const string &bytes) {
    static const char *digits = "0123456789abcdef";
    string text;
    for (unsigned char byte : bytes) {
        text.push_back(digits[byte >> 4]);
        text.push_back(digits[byte & 15]);
    }
    return text;
}

static std::vector<string> columns(const string &line) {
    std::vector<string> fields;
    for (size_t start = 0;;) {
        size_t end = line.find('\t', start);
        fields.push_back(line.substr(start, end - start));
        if (end == string::npos) return fields;
        start = end + 1;
    }
}

// Empty variables are left out.
static string variable(const char *name, const AnchoredVariable &value) {
    if (value.m_value.empty()) return "";
    return string("\t") + name + ":" + hex(value.m_value);
}

static string variable(const char *name, const AnchoredSetVariable &values) {
    std::vector<string> items;
    for (auto &entry : values) {
        items.push_back(hex(entry.second->getKey()) + "=" + hex(entry.second->getValue()) + ",");
    }
    if (items.empty()) return "";
    std::sort(items.begin(), items.end());
    string text = string("\t") + name + ":";
    for (auto &item : items) text += item;
    return text;
}

// Log lines of the transaction.
static string logged;
static void log(void *, const void *line) {
    logged += static_cast<const char *>(line);
    logged += "\n";
}

static string transformations(const std::vector<string> &input) {
    static std::map<string, Transformation *> known;
    Transformation *&transformation = known[input[0]];
    if (!transformation) {
        // The one whose name in rules is not that of its class.
        transformation = Transformation::instantiate(input[0] == "cmdLine" ? "t:cmd_line" : "t:" + input[0]);
        string error;
        transformation->init(&error);
    }
    return "\t" + hex(transformation->evaluate(unhex(input[1]), nullptr));
}

static string injections(const std::vector<string> &input) {
    string value = unhex(input[0]);
    char fingerprint[16] = {0};
    bool sqli = libinjection_sqli(value.data(), value.size(), fingerprint);
    bool xss = libinjection_xss(value.data(), value.size());
    return string(sqli ? "\t1\t" : "\t0\t") + (sqli ? fingerprint : "") + (xss ? "\t1" : "\t0");
}

static void header(Transaction &transaction, const char *name, const string &value) {
    transaction.addRequestHeader(reinterpret_cast<const unsigned char *>(name), strlen(name),
                                 reinterpret_cast<const unsigned char *>(value.data()), value.size());
}

static string operators(Transaction &transaction, const std::vector<string> &input) {
    transaction.processURI("/", "GET", "1.1");
    header(transaction, "X", unhex(input[0]));
    transaction.processRequestHeaders();
    string ids = "\t";
    for (size_t at = 0; (at = logged.find("[id \"", at)) != string::npos;) {
        at += 5;
        ids += logged.substr(at, logged.find('"', at) - at) + " ";
    }
    return ids;
}

static string targets(Transaction &transaction, const std::vector<string> &input) {
    transaction.processURI(unhex(input[0]).c_str(), "GET", "1.1");
    header(transaction, "Cookie", unhex(input[1]));
    transaction.processRequestHeaders();
    return variable("QUERY_STRING", transaction.m_variableQueryString)
        + variable("REQUEST_BASENAME", transaction.m_variableRequestBasename)
        + variable("REQUEST_FILENAME", transaction.m_variableRequestFilename)
        + variable("REQUEST_URI", transaction.m_variableRequestURI)
        + variable("URLENCODED_ERROR", transaction.m_variableUrlEncodedError)
        + variable("ARGS_GET", transaction.m_variableArgsGet)
        + variable("REQUEST_COOKIES", transaction.m_variableRequestCookies);
}

// The values of rule 2 (XML:/*) and the last one of rule 3 (XML://@*), as far as the log has them whole.
static string xml_variables() {
    string text;
    for (auto [mark, name] : {std::pair("[id \"2\"]", "XML"), std::pair("[id \"3\"]", "XML_ATTRIBUTE")}) {
        size_t at = logged.find(mark);
        if (at == string::npos) continue;
        size_t start = logged.find("[data \"", at) + 7;
        string value = logged.substr(start, logged.find('"', start) - start);
        if (value.size() % 2 == 0 && value.size() < 190) text += string("\t") + name + ":" + value;
    }
    return text;
}

static string bodies(Transaction &transaction, const std::vector<string> &input) {
    string body = unhex(input[1]);
    transaction.processURI("/", "POST", "1.1");
    header(transaction, "Content-Type", unhex(input[0]));
    transaction.processRequestHeaders();
    transaction.appendRequestBody(reinterpret_cast<const unsigned char *>(body.data()), body.size());
    transaction.processRequestBody();
    const Transaction &t = transaction;
    return variable("ARGS", t.m_variableArgs)
        + variable("FILES", t.m_variableFiles)
        + variable("FILES_NAMES", t.m_variableFilesNames)
        + variable("FILES_SIZES", t.m_variableFilesSizes)
        + variable("MULTIPART_NAME", t.m_variableMultipartName)
        + variable("MULTIPART_FILENAME", t.m_variableMultipartFileName)
        + variable("MULTIPART_PART_HEADERS", t.m_variableMultipartPartHeaders)
        + variable("MULTIPART_STRICT_ERROR", t.m_variableMultipartStrictError)
        + variable("MULTIPART_BOUNDARY_QUOTED", t.m_variableMultipartBoundaryQuoted)
        + variable("MULTIPART_BOUNDARY_WHITESPACE", t.m_variableMultipartBoundaryWhiteSpace)
        + variable("MULTIPART_CRLF_LF_LINES", t.m_variableMultipartCrlfLFLines)
        + variable("MULTIPART_DATA_AFTER", t.m_variableMultipartDataAfter)
        + variable("MULTIPART_DATA_BEFORE", t.m_variableMultipartDataBefore)
        + variable("MULTIPART_HEADER_FOLDING", t.m_variableMultipartHeaderFolding)
        + variable("MULTIPART_INVALID_HEADER_FOLDING", t.m_variableMultipartInvalidHeaderFolding)
        + variable("MULTIPART_INVALID_PART", t.m_variableMultipartInvalidPart)
        + variable("MULTIPART_INVALID_QUOTING", t.m_variableMultipartInvalidQuoting)
        + variable("MULTIPART_LF_LINE", t.m_variableMultipartLFLine)
        + variable("MULTIPART_MISSING_SEMICOLON", t.m_variableMultipartMissingSemicolon)
        + variable("MULTIPART_UNMATCHED_BOUNDARY", t.m_variableMultipartUnmatchedBoundary)
        + variable("REQBODY_ERROR", t.m_variableReqbodyError)
        + variable("URLENCODED_ERROR", t.m_variableUrlEncodedError)
        + xml_variables();
}

int main(int count, char **arguments) {
    std::ios::sync_with_stdio(false);
    string mode = count > 1 ? arguments[1] : "";
    modsecurity::ModSecurity engine;
    engine.setServerLogCb(log);
    modsecurity::RulesSet rules;
    if (count > 2 && rules.loadFromUri(arguments[2]) < 0) {
        std::cerr << rules.getParserError() << "\n";
        return 1;
    }
    for (string line; std::getline(std::cin, line);) {
        auto input = columns(line);
        std::cout << line;
        if (mode == "transformations") {
            std::cout << transformations(input);
        } else if (mode == "injections") {
            std::cout << injections(input);
        } else {
            logged.clear();
            Transaction transaction(&engine, &rules, nullptr);
            transaction.processConnection("127.0.0.1", 1, "127.0.0.1", 80);
            if (mode == "operators") {
                std::cout << operators(transaction, input);
            } else if (mode == "targets") {
                std::cout << targets(transaction, input);
            } else {
                std::cout << bodies(transaction, input);
            }
        }
        std::cout << "\n";
    }
}
