"""The samples of learners: files of data sets, images, batches."""
