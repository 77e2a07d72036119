// Command go-ftw runs the tests below a folder with the runner of go-ftw, and prints a line for each.
// The program of that name is not used: it stops at the first connection that a server closes.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	schema "github.com/coreruleset/ftw-tests-schema/v2/types"
	"github.com/coreruleset/go-ftw/config"
	"github.com/coreruleset/go-ftw/ftwhttp"
	"github.com/coreruleset/go-ftw/output"
	"github.com/coreruleset/go-ftw/runner"
	"github.com/coreruleset/go-ftw/test"
	"github.com/coreruleset/go-ftw/waflog"
	"github.com/rs/zerolog"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go-ftw FOLDER PORT LOG")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "go-ftw:", err)
		os.Exit(1)
	}
}

func run(folder, portText, log string) error {
	zerolog.SetGlobalLevel(zerolog.Disabled)
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	address := "127.0.0.1"
	cfg := config.NewDefaultConfig()
	cfg.LogFile = log
	cfg.MaxMarkerRetries = 10000
	cfg.TestOverride.Overrides.DestAddr = &address
	cfg.TestOverride.Overrides.Port = &port
	lines, err := waflog.NewFTWLogLines(cfg)
	if err != nil {
		return err
	}
	clientConfig := ftwhttp.NewClientConfig()
	client, err := ftwhttp.NewClient(clientConfig)
	if err != nil {
		return err
	}
	context := &runner.TestRunContext{
		Config:       cfg,
		RunnerConfig: &runner.RunnerConfig{ReadTimeout: time.Second},
		Output:       output.NewOutput("quiet", io.Discard),
		Client:       client,
		LogLines:     lines,
	}
	files, err := test.GetTestsFromFiles(filepath.Join(folder, "**", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		for _, one := range file.Tests {
			context.Stats = runner.NewRunStats()
			context.Result = runner.Failed
			single := *file
			single.Tests = []schema.Test{one}
			err := runner.RunTest(context, &single)
			name := one.IdString()
			switch {
			case err != nil:
				fmt.Printf("failed %s: %v\n", name, err)
			case len(context.Stats.Success) == 0:
				fmt.Printf("failed %s: matched %v\n", name, context.Stats.TriggeredRules[name])
			default:
				fmt.Printf("passed %s\n", name)
			}
		}
	}
	return nil
}
