package main

import (
	"context"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/kv"
)

// momentFlag is a time on the command line, possibly relative to now.
type momentFlag struct {
	text   string
	moment argument.Moment
}

// given reports whether the flag was given.
func (f *momentFlag) given() bool { return f.text != "" }

// parse parses the flag. It is called before the cluster is asked.
func (f *momentFlag) parse() (err error) {
	if f.given() {
		f.moment, err = argument.ParseMoment(f.text)
	}
	return err
}

// at returns the timestamp. A relative time is measured from the cluster's clock. This machine's
// clock may be wrong, and would give another time than the user wants.
func (f *momentFlag) at(ctx context.Context, client *kv.Client) (kv.Timestamp, error) {
	var now kv.Timestamp
	if f.moment.Relative() {
		var err error
		if now, err = client.Now(ctx); err != nil {
			return kv.Timestamp{}, err
		}
	}
	return f.moment.At(now)
}
