// Package exporter turns the collector's Samples into Prometheus metrics and
// serves them over HTTP.
//
// A Sample holds the deltas of one interval; Prometheus wants counters that
// only grow. The Exporter adds the deltas up between scrapes, so a scrape never
// touches the kernel and any number of scrapers see the same figures.
//
// It refuses to decide anything and to read anything but Samples. The number of
// series is bounded: see Limits.
package exporter
