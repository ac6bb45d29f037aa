package console

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// New makes a console. It does nothing until a page is opened.
func New(config Config) (*Console, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	c := &Console{config: config, files: files, mux: http.NewServeMux(),
		sessions:  &sessions{now: config.Now, all: map[string]*session{}},
		streams:   make(chan struct{}, maxStreams),
		questions: make(chan struct{}, maxQuestions), logins: newLogins()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.nobody = newViewer("", func(ctx context.Context) (Cluster, error) {
		return config.Open(ctx, "", "")
	})
	c.hub = &hub{topics: c.topics(), allowed: c.allowed, ctx: c.ctx, feeds: map[feedKey]*feed{}}
	c.mux.Handle("/console/", files)
	c.mux.HandleFunc("GET /console/api/session", c.session)
	c.mux.HandleFunc("POST /console/api/login", c.login)
	c.mux.HandleFunc("POST /console/api/logout", c.logout)
	c.mux.HandleFunc("GET /console/api/live", c.viewed(c.live))
	c.mux.HandleFunc("GET /console/api/why", c.viewed(c.why))
	c.mux.HandleFunc("POST /console/api/do/{action}", c.viewed(c.do))
	c.mux.HandleFunc("POST /console/api/demo/{action}", c.viewed(c.doDemo))
	c.mux.HandleFunc("/console/api/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "there is nothing at this address")
	})
	return c, nil
}

// topics are the feeds that pages can follow, by the first part of their names.
func (c *Console) topics() map[string]topic {
	return map[string]topic{
		"cluster":    {c.overview, time.Second},
		"history":    {c.history, 5 * time.Second},
		"heat":       {c.heat, 5 * time.Second},
		"keyspaces":  {listKeyspaces, 2 * time.Second},
		"partitions": {listPartitions, 2 * time.Second},
		"events":     {listEvents, 2 * time.Second},
		"placement":  {listOperators, time.Second},
		"slow":       {listSlow, 3 * time.Second},
		"txns":       {listTransactions, time.Second},
		"coord":      {c.coordination, 2 * time.Second},
		"backups":    {listBackups, 2 * time.Second},
	}
}
