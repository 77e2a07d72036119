//go:build programs

// Imports the program to build, so that go.mod keeps its dependencies.
package main

import _ "github.com/crowdsecurity/crowdsec/cmd/crowdsec"
