package argument

import (
	"crypto/tls"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/rpc/authn"
)

// The environment variables of a client with TLS. A flag overrides its variable.
const (
	TLSEnv     = "TIDEMARK_TLS"
	TLSCAEnv   = "TIDEMARK_TLS_CA"
	TLSCertEnv = "TIDEMARK_TLS_CERT"
	TLSKeyEnv  = "TIDEMARK_TLS_KEY"
)

// ClientTLS has the TLS flags of a client.
type ClientTLS struct {
	flags         *cobra.Command
	on            bool
	ca, cert, key string
}

// Register adds the flags.
func (c *ClientTLS) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&c.on, "tls", false,
		"connect with TLS; servers' certificates are checked by this machine's authorities, or "+
			"--tls-ca (default "+TLSEnv+")")
	flags.StringVar(&c.ca, "tls-ca", "",
		"PEM file of the authorities that sign the servers' certificates; turns TLS on (default "+
			TLSCAEnv+")")
	flags.StringVar(&c.cert, "tls-cert", "",
		"PEM file of this client's certificate, if the servers ask for one; turns TLS on (default "+
			TLSCertEnv+")")
	flags.StringVar(&c.key, "tls-key", "",
		"PEM file of the key of --tls-cert (default "+TLSKeyEnv+")")
	before := cmd.PreRun
	cmd.PreRun = func(cmd *cobra.Command, args []string) {
		c.flags = cmd
		if before != nil {
			before(cmd, args)
		}
	}
}

// Parsed records that the flags of a command were parsed although the command does not run, as in
// completion.
func (c *ClientTLS) Parsed(cmd *cobra.Command) { c.flags = cmd }

// Config returns the TLS configuration, or nil for plain text. --tls=false means plain text
// whatever the environment says.
func (c *ClientTLS) Config(getenv func(string) string) (*tls.Config, error) {
	given := func(flag string) bool { return c.flags != nil && c.flags.Flags().Changed(flag) }
	if given("tls") && !c.on {
		if c.ca != "" || c.cert != "" || c.key != "" {
			return nil, exit.Usagef(
				"--tls=false with --tls-ca, --tls-cert or --tls-key: that is TLS or it is not")
		}
		return nil, nil
	}
	on, ca, cert, key := c.on, c.ca, c.cert, c.key
	if text := getenv(TLSEnv); text != "" && !given("tls") {
		said, err := strconv.ParseBool(text)
		if err != nil {
			return nil, exit.Usagef("%s=%q: use true or false", TLSEnv, text)
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
	}{{&ca, "tls-ca", TLSCAEnv}, {&cert, "tls-cert", TLSCertEnv}, {&key, "tls-key", TLSKeyEnv}} {
		if !given(from.flag) {
			*from.value = getenv(from.env)
		}
	}
	if !on && ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, exit.Usagef("--tls-cert and --tls-key belong together: give both or neither "+
			"(or %s and %s)", TLSCertEnv, TLSKeyEnv)
	}
	config, err := authn.LoadClientTLS(cert, key, ca)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return config, nil
}
