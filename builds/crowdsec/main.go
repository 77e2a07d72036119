// Command register makes the database of CrowdSec's local API, with one machine and one bouncer: cscli machines add and
// cscli bouncers add in one process that starts faster.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/crowdsecurity/crowdsec/pkg/apiserver/middlewares/v1"
	"github.com/crowdsecurity/crowdsec/pkg/csconfig"
	"github.com/crowdsecurity/crowdsec/pkg/database"
	"github.com/crowdsecurity/crowdsec/pkg/types"
	"github.com/go-openapi/strfmt"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: register DATABASE NAME (also the password and the key)")
		os.Exit(2)
	}
	if err := register(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "register:", err)
		os.Exit(1)
	}
}

func register(path, name string) error {
	ctx := context.Background()
	noWAL := false
	client, err := database.NewClient(ctx, &csconfig.DatabaseCfg{Type: "sqlite", DbPath: path, UseWal: &noWAL})
	if err != nil {
		return err
	}
	password := strfmt.Password(name)
	if _, err := client.CreateMachine(ctx, &name, &password, "", true, false, types.PasswordAuthType); err != nil {
		return err
	}
	_, err = client.CreateBouncer(ctx, name, "", v1.HashSHA512(name), types.ApiKeyAuthType, false)
	return err
}
