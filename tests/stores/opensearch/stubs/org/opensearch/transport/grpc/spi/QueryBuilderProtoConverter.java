package org.opensearch.transport.grpc.spi;

/** Stands for an interface of a module that is not on Maven Central; the k-NN plugin names it. */
public interface QueryBuilderProtoConverter {}
