//go:build programs

// What is built: named here, so that go.mod keeps what they need.
package programs

import (
	_ "github.com/crowdsecurity/crowdsec/cmd/crowdsec"
	_ "github.com/crowdsecurity/crowdsec/cmd/crowdsec-cli"
)
