package main

import (
	"crypto/tls"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/rpc"
)

// The environment of a client with TLS. A flag goes before its variable.
const (
	tlsEnv     = "TIDEMARK_TLS"
	tlsCAEnv   = "TIDEMARK_TLS_CA"
	tlsCertEnv = "TIDEMARK_TLS_CERT"
	tlsKeyEnv  = "TIDEMARK_TLS_KEY"
)

// clientTLS is what the flags of a client say about TLS.
type clientTLS struct {
	flags         *cobra.Command
	on            bool
	ca, cert, key string
}

func (c *clientTLS) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&c.on, "tls", false, "connect with TLS; servers' certificates are checked by this machine's authorities, or --tls-ca (default "+tlsEnv+")")
	flags.StringVar(&c.ca, "tls-ca", "", "PEM file of the authorities that sign the servers' certificates; turns TLS on (default "+tlsCAEnv+")")
	flags.StringVar(&c.cert, "tls-cert", "", "PEM file of this client's certificate, if the servers ask for one; turns TLS on (default "+tlsCertEnv+")")
	flags.StringVar(&c.key, "tls-key", "", "PEM file of the key of --tls-cert (default "+tlsKeyEnv+")")
	before := cmd.PreRun
	cmd.PreRun = func(cmd *cobra.Command, args []string) {
		c.flags = cmd
		if before != nil {
			before(cmd, args)
		}
	}
}

// config is nil for plain text. --tls=false is plain text whatever the environment says.
func (c *clientTLS) config(getenv func(string) string) (*tls.Config, error) {
	given := func(flag string) bool { return c.flags != nil && c.flags.Flags().Changed(flag) }
	if given("tls") && !c.on {
		if c.ca != "" || c.cert != "" || c.key != "" {
			return nil, usagef("--tls=false with --tls-ca, --tls-cert or --tls-key: that is TLS or it is not")
		}
		return nil, nil
	}
	on, ca, cert, key := c.on, c.ca, c.cert, c.key
	if text := getenv(tlsEnv); text != "" && !given("tls") {
		said, err := strconv.ParseBool(text)
		if err != nil {
			return nil, usagef("%s=%q: use true or false", tlsEnv, text)
		}
		if !said && !given("tls-ca") && !given("tls-cert") {
			return nil, nil
		}
		on = said
	}
	for _, from := range []struct {
		value *string
		flag  string
		env   string
	}{{&ca, "tls-ca", tlsCAEnv}, {&cert, "tls-cert", tlsCertEnv}, {&key, "tls-key", tlsKeyEnv}} {
		if !given(from.flag) {
			*from.value = getenv(from.env)
		}
	}
	if !on && ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--tls-cert and --tls-key belong together: give both or neither (or %s and %s)", tlsCertEnv, tlsKeyEnv)
	}
	config, err := rpc.LoadClientTLS(cert, key, ca)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return config, nil
}
