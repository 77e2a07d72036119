// Command coraza runs a corpus of requests through Coraza, as crates/waf-tools/examples/wafbench.rs does through this
// project's engine: coraza verdicts|time RULES CORPUS
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/types"
)

type request struct {
	method, target, protocol string
	headers                  [][2]string
	body                     []byte
	// Type and body of the response; without a type only the phases of the request run.
	responseType string
	response     []byte
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "coraza:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: coraza verdicts|time RULES CORPUS")
	}
	// One thread besides the collector, as the other engines have one.
	runtime.LockOSThread()
	before := cpu()
	waf, err := coraza.NewWAF(coraza.NewWAFConfig().WithDirectivesFromFile(arguments[1]))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "loaded in %.1f ms, %d kB\n", (cpu()-before)/1e3, resident())
	requests, err := read(arguments[2])
	if err != nil {
		return err
	}
	for index, request := range requests {
		start := cpu()
		ids, score := process(waf, request)
		first := cpu() - start
		if arguments[0] == "verdicts" {
			slices.Sort(ids)
			text := strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Compact(ids)), " ", ","), "[]")
			fmt.Printf("%d %s %s\n", index, text, score)
			continue
		}
		// The collector runs beside the requests, so that the time is that of the process over all repetitions.
		repetitions := min(max(int(1e6/first), 7), 1001)
		start = cpu()
		for range repetitions {
			process(waf, request)
		}
		each := (cpu() - start) / float64(repetitions)
		fmt.Printf("%d bytes %d matches %d first_us %.1f median_us %.1f\n", index,
			len(request.target)+len(request.body)+len(request.response), len(ids), first, each)
	}
	fmt.Fprintf(os.Stderr, "%d kB resident\n", resident())
	return nil
}

var total = regexp.MustCompile(`Inbound Anomaly Score Exceeded \(Total Score: (\d+)`)

func process(waf coraza.WAF, request request) ([]int, string) {
	tx := waf.NewTransaction()
	defer tx.Close()
	tx.ProcessConnection("127.0.0.1", 33333, "127.0.0.1", 80)
	tx.ProcessURI(request.target, request.method, request.protocol)
	for _, header := range request.headers {
		tx.AddRequestHeader(header[0], header[1])
	}
	if tx.ProcessRequestHeaders() == nil {
		if len(request.body) > 0 {
			tx.WriteRequestBody(request.body)
		}
		tx.ProcessRequestBody()
	}
	if request.responseType != "" {
		tx.AddResponseHeader("Content-Type", request.responseType)
		tx.ProcessResponseHeaders(200, "HTTP/1.1")
		tx.WriteResponseBody(request.response)
		tx.ProcessResponseBody()
		tx.ProcessLogging()
	}
	return matches(tx)
}

func matches(tx types.Transaction) ([]int, string) {
	ids, score := []int{}, "-"
	for _, match := range tx.MatchedRules() {
		if _, ok := match.(interface{ Log() bool }); ok && !match.(interface{ Log() bool }).Log() {
			continue
		}
		ids = append(ids, match.Rule().ID())
		if found := total.FindStringSubmatch(match.Message()); found != nil {
			score = found[1]
		}
	}
	return ids, score
}

func read(path string) ([]request, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	field := func() []byte {
		length := binary.LittleEndian.Uint32(bytes)
		field := bytes[4 : 4+length]
		bytes = bytes[4+length:]
		return field
	}
	requests := []request{}
	for len(bytes) > 0 {
		request := request{method: string(field()), target: string(field()), protocol: string(field())}
		for range binary.LittleEndian.Uint32(field()) {
			request.headers = append(request.headers, [2]string{string(field()), string(field())})
		}
		request.body = field()
		request.responseType, request.response = string(field()), field()
		requests = append(requests, request)
	}
	return requests, nil
}

// cpu returns the CPU time of the process in microseconds.
func cpu() float64 {
	const processCPU = 2 // CLOCK_PROCESS_CPUTIME_ID
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, processCPU, uintptr(unsafe.Pointer(&t)), 0)
	return float64(time.Duration(t.Nano()).Nanoseconds()) / 1e3
}

// resident returns the resident memory in kB.
func resident() int {
	var pages, rest int
	text, _ := os.ReadFile("/proc/self/statm")
	fmt.Sscan(string(text), &rest, &pages)
	return pages * os.Getpagesize() / 1024
}
