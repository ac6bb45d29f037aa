package console

import "time"

// The limits of a console. A server has one console for all callers.
const (
	// maxStreams limits the streams of all pages, maxFeeds the feeds of all viewers, and feedsOfStream
	// the feeds of one stream.
	maxStreams    = 64
	maxFeeds      = 128
	feedsOfStream = 6
	// maxFeedName bounds the name of a feed with its parameters, in bytes.
	maxFeedName = 512
	// maxQuestions is the number of single questions and changes that are answered at a time.
	maxQuestions = 16
	// maxSessions limits the number of sessions, and sessionsOfUser those of one user. A session ends
	// after sessionIdle without a request, and sessionAge after the login.
	maxSessions    = 64
	sessionsOfUser = 8
	sessionIdle    = time.Hour
	sessionAge     = 12 * time.Hour
	// maxLogins is the number of concurrent logins, of which one host has at most half. Other logins
	// wait for loginPatience, at most maxWaitingLogins of a host, and are then refused.
	maxLogins        = 4
	maxWaitingLogins = 16
	loginPatience    = 5 * time.Second
	// failuresPause is the shortest pause between two lines about failed logins.
	failuresPause = 100 * time.Millisecond
	// maxBody bounds the body of a request, in bytes.
	maxBody = 64 << 10
	// listed limits the rows of a list. The pages show how many more rows there are.
	listed = 500
	// asking bounds the time of one question to the cluster.
	asking = 10 * time.Second
	// viewerIdle is the time for which the connections to the cluster stay open after the last stream.
	viewerIdle = 20 * time.Second
	// keepAlive is the pause after which a stream without new answers sends a comment. writing is the
	// time that a page has to read what is sent. A stream that exceeds it is ended.
	keepAlive = 15 * time.Second
	writing   = 10 * time.Second
)

// restAfter is the pause of a feed after a question, in multiples of the duration of the question,
// so that a feed works for less than a fiftieth of the time. The pause is at most longestRest.
const (
	restAfter   = 50
	longestRest = 20 * time.Second
)
