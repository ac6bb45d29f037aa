package main

import (
	"context"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/kv"
)

// connect opens a client to the cluster that the flags and the environment name.
func (a *app) connect(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
	endpoints, err := a.addresses()
	if err != nil {
		return nil, err
	}
	options = append(options, kv.RequestTimeout(a.timeout))
	region, zone, err := argument.ParseLocality(a.locality)
	if err != nil {
		return nil, err
	}
	options = append(options, kv.Locality(region, zone))
	config, err := a.tls.Config(a.getenv)
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, kv.TLS(config))
	}
	name, password, err := a.credentials()
	if err != nil {
		return nil, err
	}
	if name != "" {
		options = append(options, kv.User(name, kv.Password(password)))
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	return kv.Open(ctx, endpoints, options...)
}

// addresses returns the servers' addresses from the flags or the environment.
func (a *app) addresses() ([]string, error) {
	endpoints := a.endpoints
	if len(endpoints) == 0 {
		if text := a.getenv(endpointsEnv); text != "" {
			endpoints = strings.Split(text, ",")
		}
	}
	if len(endpoints) == 0 {
		endpoints = []string{defaultEndpoint}
	}
	for i, endpoint := range endpoints {
		endpoints[i] = strings.TrimSpace(endpoint)
		if err := argument.CheckAddress("endpoint", endpoints[i], false); err != nil {
			return nil, err
		}
	}
	return endpoints, nil
}

// withClient runs do with a client, and closes it.
func (a *app) withClient(ctx context.Context, do func(*kv.Client) error) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return keyspaceMeant(ctx, client, do(client))
}

// withKeyspace runs do with a keyspace of a client.
func (a *app) withKeyspace(ctx context.Context, name string, do func(*kv.Keyspace) error) error {
	return a.withClient(ctx, func(client *kv.Client) error { return do(client.Keyspace(name)) })
}
