package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	defaultHTTP = "127.0.0.1:7480"
	httpEnv     = "TIDEMARK_HTTP"
	// healthTimeout is the default of --timeout for a request to one server, which is near.
	healthTimeout = 5 * time.Second
	// maxReasons limits the size of an answer.
	maxReasons = 64 << 10
)

func (a *app) healthCommand() *cobra.Command {
	var address, name string
	var live bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask one server whether it is ready, or alive",
		Long: `Ask one server at its --http address whether it is ready (/readyz), or with --live
whether it is alive (/livez). If it is not, the reasons are printed.

The exit code is 0 for yes, 1 for no or without an answer, and 2 if the command line is wrong, as
the health checks of containers and supervisors expect. Restart a server because of --live, never
because it is not ready. For the health of the whole cluster use tidemark status.

If --http is every address of the machine, such as 0.0.0.0:7480, the command asks this machine, so
the server's own value can be given.`,
		Example: `  tidemark health --http 127.0.0.1:7480
  tidemark health --live --tls-ca certs/server-ca.crt --http db1.example:7480`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.health(ctx, address, name, live)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "http", "",
		"address of the server's metrics and health (default "+httpEnv+", or "+defaultHTTP+")")
	flags.BoolVar(&live, "live", false, "ask whether it is alive, not whether it is ready")
	flags.DurationVar(&a.timeout, "timeout", healthTimeout,
		"how long to wait for the answer; 0 is without limit")
	flags.StringVar(&name, "tls-name", "",
		"name that is in the server's certificate, if it is not the host of --http; turns TLS on")
	a.tls.Register(cmd)
	return a.printing(cmd)
}

// health asks a server for its health, and prints the answer.
func (a *app) health(ctx context.Context, address, name string, live bool) error {
	address = cmp.Or(address, a.getenv(httpEnv), defaultHTTP)
	if err := argument.CheckAddress("--http", address, true); err != nil {
		return err
	}
	client, scheme, err := a.healthClient(name)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	page, state := "/readyz", "ready"
	if live {
		page, state = "/livez", "alive"
	}
	reasons := askHealth(ctx, client, scheme+"://"+nearby(address)+page)
	list := a.list(output.Column{Name: "http"}, output.Column{Name: state},
		output.Column{Name: "reasons", Programs: true})
	list.Row(address, output.Health(len(reasons) == 0), reasons)
	if err := list.Flush(); err != nil || len(reasons) == 0 {
		return err
	}
	return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the server at %s is not %s: %s", address,
		state, strings.Join(reasons, "; "))}
}

// healthClient returns a client that uses TLS if the flags or the environment say so.
func (a *app) healthClient(name string) (client *http.Client, scheme string, err error) {
	config, err := a.tls.Config(a.getenv)
	if err != nil {
		return nil, "", err
	}
	if config == nil && name != "" {
		return nil, "", exit.Usagef("--tls-name is for a server with TLS: give --tls or " +
			"--tls-ca with it")
	}
	scheme = "http"
	if config != nil {
		scheme, config.ServerName = "https", name
	}
	return &http.Client{
		// No proxy is used, because the request is for this server.
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}, scheme, nil
}

// nearby returns the address to call, given an address to listen on.
func nearby(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || !argument.Unspecified(host) {
		return address
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return net.JoinHostPort("::1", port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// askHealth returns the reasons why the server is not healthy. It returns none if the server is
// healthy.
func askHealth(ctx context.Context, client *http.Client, page string) []string {
	body, status, err := getPage(ctx, client, page)
	switch {
	case err != nil:
		return []string{exit.Message(err)}
	case status == http.StatusOK:
		return []string{}
	case status == http.StatusBadRequest && strings.Contains(body, "HTTPS server"):
		return []string{exit.Message(errors.New(wire.ReasonWantsTLS))}
	case status != http.StatusServiceUnavailable:
		return []string{fmt.Sprintf("not a server of Tidemark: it answered with status %d", status)}
	}
	var reasons []string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" {
			reasons = append(reasons, line)
		}
	}
	if len(reasons) == 0 {
		reasons = []string{"it gives no reason"}
	}
	return reasons
}

func getPage(ctx context.Context, client *http.Client, page string) (string, int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return "", 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", 0, reasonOfHTTP(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReasons))
	if err != nil {
		return "", 0, reasonOfHTTP(ctx, err)
	}
	return string(body), response.StatusCode, nil
}

// reasonOfHTTP returns why there is no answer, without the text that net/http adds.
func reasonOfHTTP(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = ctx.Err()
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return errors.New(wire.ReasonNoTLS)
	}
	return errors.New(wire.Reason(err))
}
