// Command gateway-clients is a server and a client of net/http.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const usage = `usage: gateway-clients server [CERTIFICATE KEY]
       gateway-clients together|upload|trailers|events URL CERTIFICATE`

// For one check on a busy machine. What is checked does not depend on it.
const patience = 100 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gateway-clients:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	checks := map[string]func(*http.Client, string) error{
		"together": together, "upload": upload, "trailers": trailers, "events": events,
	}
	switch {
	case len(arguments) > 0 && arguments[0] == "server":
		return serve(arguments[1:])
	case len(arguments) == 3 && checks[arguments[0]] != nil:
		client, err := newClient(arguments[2])
		if err != nil {
			return err
		}
		return checks[arguments[0]](client, arguments[1])
	}
	return errors.New(usage)
}

// serve prints the port. With a certificate it speaks HTTP/2 over TLS, otherwise HTTP/1.1.
func serve(certificate []string) error {
	group := group{full: make(chan struct{})}
	next := make(chan string)
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><title>gateway</title>")
	})
	// Responds once as many requests as `count` says are here.
	mux.HandleFunc("/together", func(w http.ResponseWriter, r *http.Request) {
		count, err := strconv.Atoi(r.FormValue("count"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		group.wait(r.Context(), count)
		io.WriteString(w, "together")
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		count, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, r.Proto, r.Header["Expect"], count, err)
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
		w.Header().Set("X-Sum", "of "+r.Trailer.Get("X-Sum"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "unannounced")
	})
	// A stream of events, each sent by a request for /next.
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		for {
			select {
			case text := <-next:
				fmt.Fprintf(w, "data: %s\n\n", text)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case next <- r.FormValue("text"):
		case <-r.Context().Done():
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	if len(certificate) == 2 {
		return http.ServeTLS(listener, mux, certificate[0], certificate[1])
	}
	return http.Serve(listener, mux)
}

// A group of requests that wait for each other.
type group struct {
	mutex   sync.Mutex
	waiting int
	full    chan struct{}
}

func (g *group) wait(ctx context.Context, count int) {
	g.mutex.Lock()
	full := g.full
	if g.waiting++; g.waiting == count {
		close(full)
		g.waiting, g.full = 0, make(chan struct{})
	}
	g.mutex.Unlock()
	select {
	case <-full:
	case <-ctx.Done():
	}
}

func newClient(certificate string) (*http.Client, error) {
	pem, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: trusted},
		ForceAttemptHTTP2: true,
		// So long that a body is sent only after 100 Continue.
		ExpectContinueTimeout: 10 * patience,
	}
	return &http.Client{Transport: transport, Timeout: patience}, nil
}

// get returns the body of a response over HTTP/2 with status 200.
func get(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	return read(response, http.StatusOK)
}

func read(response *http.Response, status int) (string, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.Proto != "HTTP/2.0" || response.StatusCode != status) {
		err = fmt.Errorf("%s %s: %s", response.Proto, response.Status, body)
	}
	return string(body), err
}

// together sends 300 requests, none of which is answered before all have arrived.
func together(client *http.Client, url string) error {
	const count = 300
	results := make(chan error, count)
	for range count {
		go func() {
			body, err := get(client, fmt.Sprintf("%s/together?count=%d", url, count))
			if err == nil && body != "together" {
				err = errors.New(body)
			}
			results <- err
		}()
	}
	for range count {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// A body that counts what is read of it.
type counter struct {
	io.Reader
	read atomic.Int64
}

func (c *counter) Read(bytes []byte) (int, error) {
	count, err := c.Reader.Read(bytes)
	c.read.Add(int64(count))
	return count, err
}

// upload sends, after 100 Continue only, a body that the gateway buffers, one that it forwards as it arrives, and one that the
// server does not want.
func upload(client *http.Client, url string) error {
	for _, size := range []int{60_000, 300_000} {
		body, continued, err := uploadTo(client, url+"/upload", size, http.StatusOK)
		if err != nil {
			return err
		}
		if !continued || !strings.HasSuffix(body, fmt.Sprintf(" %d <nil>\n", size)) {
			return fmt.Errorf("of %d bytes: 100 Continue: %t, %s", size, continued, body)
		}
	}
	// Longer than what the gateway asks for by itself.
	_, continued, err := uploadTo(client, url+"/refuse", 300_000, http.StatusForbidden)
	if err == nil && continued {
		err = errors.New("100 Continue for a refused body")
	}
	return err
}

func uploadTo(client *http.Client, url string, size int, status int) (string, bool, error) {
	var continued atomic.Bool
	content := &counter{Reader: strings.NewReader(strings.Repeat("x", size))}
	// The server may send another one, once the gateway has sent it the body.
	trace := &httptrace.ClientTrace{Got100Continue: func() {
		if content.read.Load() == 0 {
			continued.Store(true)
		}
	}}
	ctx := httptrace.WithClientTrace(context.Background(), trace)
	request, err := http.NewRequestWithContext(ctx, "POST", url, content)
	if err != nil {
		return "", false, err
	}
	request.ContentLength = int64(size)
	request.Header.Set("Expect", "100-continue")
	response, err := client.Do(request)
	if err != nil {
		return "", false, err
	}
	body, err := read(response, status)
	return body, continued.Load(), err
}

// trailers sends a body with a trailer, and expects it and two trailers back.
func trailers(client *http.Client, url string) error {
	body, writer := io.Pipe()
	request, err := http.NewRequest("POST", url+"/trailers", body)
	if err != nil {
		return err
	}
	request.Trailer = http.Header{"X-Sum": nil}
	go func() {
		io.WriteString(writer, "hello")
		request.Trailer.Set("X-Sum", "five")
		writer.Close()
	}()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	text, err := read(response, http.StatusOK)
	if err != nil {
		return err
	}
	sum, late := response.Trailer.Get("X-Sum"), response.Trailer.Get("X-Late")
	if text != "hello" || sum != "of five" || late != "unannounced" {
		return fmt.Errorf("%q with trailers %v", text, response.Trailer)
	}
	return nil
}

// events asks for each event once it has read the one before.
func events(client *http.Client, url string) error {
	response, err := client.Get(url + "/events")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	expected := "first"
	for number := range 20 {
		if !lines.Scan() || lines.Text() != "data: "+expected || !lines.Scan() || lines.Text() != "" {
			return fmt.Errorf("%q in place of %q: %v", lines.Text(), expected, lines.Err())
		}
		expected = strconv.Itoa(number)
		if _, err := get(client, url+"/next?text="+expected); err != nil {
			return err
		}
	}
	if response.Proto != "HTTP/2.0" {
		return errors.New(response.Proto)
	}
	return nil
}
