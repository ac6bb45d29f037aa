package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// profile starts a processor profile of each server, if profiles are wanted and possible. The
// returned function waits for the profiles.
func (x *subject) profile(ctx context.Context, s *settings, name string) func() error {
	if s.profiles == "" || x.admin == nil {
		return func() error { return nil }
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, address := range x.admin {
		group.Go(func() error {
			path := filepath.Join(s.profiles, fmt.Sprintf("%s-%d.pprof", name, i+1))
			url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address,
				max(1, int(s.duration.Seconds())))
			return save(ctx, url, path)
		})
	}
	return group.Wait
}

func save(ctx context.Context, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, response.Body)
	return errors.Join(err, file.Close())
}
