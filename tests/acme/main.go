// Command acme is an authority for tests: Pebble, with a DNS that has 127.0.0.1 for every name. It prints the URL of its
// directory, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

const usage = "usage: acme CERTIFICATE KEY HTTP_PORT TLS_PORT VALIDITY_SECONDS [EXTERNAL_ID EXTERNAL_KEY]"

func main() {
	if len(os.Args) != 6 && len(os.Args) != 8 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:6], os.Args[6:]); err != nil {
		fmt.Fprintln(os.Stderr, "acme:", err)
		os.Exit(1)
	}
}

func run(certificate, key string, numberTexts, account []string) error {
	var numbers [3]int
	for at, text := range numberTexts {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		numbers[at] = number
	}
	resolver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go dns.ActivateAndServe(resolver, nil, dns.HandlerFunc(answer))

	logger := log.New(os.Stderr, "", 0)
	store := db.NewMemoryStore()
	if len(account) > 0 {
		if err := store.AddExternalAccountKeyByID(account[0], account[1]); err != nil {
			return err
		}
	}
	profile := ca.Profile{Description: "default", ValidityPeriod: uint64(numbers[2])}
	issuer := ca.New(logger, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": profile})
	checks := va.New(logger, numbers[0], numbers[1], false, resolver.Addr().String(), store)
	caa := []string{"tollgate.test"}
	front := wfe.New(logger, store, checks, issuer, caa, false, len(account) > 0, 1, 1)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.ServeTLS(listener, front.Handler(), certificate, key)
	fmt.Printf("https://%s%s\n", listener.Addr(), wfe.DirectoryPath)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func answer(writer dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg).SetReply(query)
	if question := query.Question[0]; question.Qtype == dns.TypeA {
		header := dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
		reply.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
	}
	if err := writer.WriteMsg(reply); err != nil {
		fmt.Fprintln(os.Stderr, "acme:", err)
	}
}
