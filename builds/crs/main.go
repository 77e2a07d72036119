// Command crs writes the Core Rule Set into a folder, in a form that all engines can read.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crs FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crs:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	if err := writeFile("@crs-setup.conf.example", filepath.Join(folder, "crs-setup.conf")); err != nil {
		return err
	}
	rules := filepath.Join(folder, "rules")
	if err := os.Mkdir(rules, 0o755); err != nil {
		return err
	}
	entries, err := fs.ReadDir(coreruleset.FS, "@owasp_crs")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source := path.Join("@owasp_crs", entry.Name())
		if err := writeFile(source, filepath.Join(rules, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(source, target string) error {
	text, err := fs.ReadFile(coreruleset.FS, source)
	if err != nil {
		return err
	}
	if strings.HasSuffix(target, ".conf") {
		text = []byte(spaced(string(text)))
	}
	return os.WriteFile(target, text, 0o644)
}

// spaced inserts a blank line before each directive. The module ships its files without blank lines, and libmodsecurity
// 3 then merges a rule without actions with the next one.
func spaced(text string) string {
	var out strings.Builder
	continued := false
	for line := range strings.Lines(text) {
		if !continued && strings.HasPrefix(line, "Sec") {
			out.WriteByte('\n')
		}
		out.WriteString(line)
		continued = strings.HasSuffix(strings.TrimRight(line, "\r\n"), "\\")
	}
	return out.String()
}
