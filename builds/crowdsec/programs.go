//go:build programs

// Package programs imports the programs to build, so that go.mod keeps their dependencies.
package programs

import (
	_ "github.com/crowdsecurity/crowdsec/cmd/crowdsec"
	_ "github.com/crowdsecurity/crowdsec/cmd/crowdsec-cli"
)
